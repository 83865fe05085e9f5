"""The host's side of the model gateway: OmniRoute over its API, grants at the gate, providers and aliases."""

"""The only room that talks to a container engine: a narrow protocol, Docker behind it, and an in-memory fake."""

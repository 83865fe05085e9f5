"""The principal: drives a bead from the task to its acceptance, keeps the record, and removes what it made."""

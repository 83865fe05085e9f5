"""A student leaf's lifecycle on the host: boot, brief, run, freeze, verify, hand over, dispose (R-22)."""

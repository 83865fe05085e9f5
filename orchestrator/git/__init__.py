"""Trusted host git over untrusted trees: workspace, private git dir, freeze, landing, disposal. Host only.

The way of a bead through this room: ``open_repository`` -> ``Workspace.create`` -> (the student works) -> ``freeze``
-> ``keep`` -> ``accept`` -> ``dispose_workspace``.
"""

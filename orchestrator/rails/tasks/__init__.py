"""The task tracker (R-90): what is to be done, who has taken it, how it ended. Judgment lives in bookbags (R-7)."""

from orchestrator.rails.tasks.base import NewTask, Status, Task, TaskStore, bead_of
from orchestrator.rails.tasks.choice import open_tasks

__all__ = ["NewTask", "Status", "Task", "TaskStore", "bead_of", "open_tasks"]

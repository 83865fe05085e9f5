"""Mail: a person is told of a verdict and answers with one of three commands (R-45, R-46).

``open_mailer`` gives the mail service of a home, ``send_notice`` tells a person, ``read_answers`` reads what came back.
An answer that fails one check is recorded with its reason and has no effect.
"""

from orchestrator.rails.mail.base import Incoming, Mailer, Outgoing, Reply, Sent
from orchestrator.rails.mail.choice import allowed_senders, open_mailer
from orchestrator.rails.mail.judge import Accepted, Expectation, Refused, judge_reply
from orchestrator.rails.mail.notices import Answer, Notice, Notices
from orchestrator.rails.mail.rounds import Handled, read_answers, send_notice

__all__ = [
    "Accepted",
    "Answer",
    "Expectation",
    "Handled",
    "Incoming",
    "Mailer",
    "Notice",
    "Notices",
    "Outgoing",
    "Refused",
    "Reply",
    "Sent",
    "allowed_senders",
    "judge_reply",
    "open_mailer",
    "read_answers",
    "send_notice",
]

"""How the work of a process is ended: signals, requests from elsewhere, and when neither counts any more."""

import os
import signal
import threading
import time

import pytest

from orchestrator.errors import CancelledError
from orchestrator.home import Home
from orchestrator.principal import cancel
from orchestrator.principal.cancel import Cancellation, request_path, requested

BEAD = "coder-general-00000001"


@pytest.fixture
def home(tmp_path):
    root = tmp_path / "home"
    return Home(root, root / "bookbag", root / "signals", root / "locks").ensure()


@pytest.fixture(autouse=True)
def handlers():
    """Start from what a terminal gives, also under nohup; whatever a test leaves installed is taken back."""
    before = {number: signal.getsignal(number) for number in cancel.SIGNALS}
    for number in cancel.SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def hit(number):
    os.kill(os.getpid(), number)
    time.sleep(0.05)  # the handler runs here


@pytest.mark.parametrize("number", cancel.SIGNALS)
def test_a_signal_is_raised_where_the_main_thread_waits(number):
    with Cancellation().installed() as cancellation, pytest.raises(CancelledError, match=number.name):
        hit(number)
    assert cancellation.cancelled


def test_a_second_signal_does_not_interrupt_what_the_first_began():
    with Cancellation().installed():
        with pytest.raises(CancelledError):
            hit(signal.SIGINT)
        hit(signal.SIGINT)
        hit(signal.SIGTERM)


def test_a_later_signal_counts_again_as_the_first_may_have_been_swallowed(monkeypatch):
    monkeypatch.setattr(cancel, "AGAIN_SECONDS", 0.0)
    with Cancellation().installed():
        for _ in range(2):
            with pytest.raises(CancelledError):
                hit(signal.SIGINT)


def test_behind_the_shield_nothing_is_raised():
    with Cancellation().installed() as cancellation:
        cancellation.shield()
        hit(signal.SIGINT)
        hit(signal.SIGHUP)
    assert not cancellation.cancelled


def test_handlers_are_given_back_unless_the_process_is_on_its_way_out():
    before = signal.getsignal(signal.SIGINT)
    with Cancellation().installed():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with Cancellation().installed(), pytest.raises(CancelledError):
        hit(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_what_was_ignored_stays_ignored():
    """nohup, and a shell's background jobs."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Cancellation().installed():
        hit(signal.SIGHUP)


def test_in_another_thread_nothing_is_installed():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with Cancellation().installed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("early", [True, False])
def test_a_request_from_elsewhere_reaches_who_drives_the_bead(home, early):
    path = request_path(home, BEAD)
    timer = threading.Timer(0.0 if early else 0.3, path.touch)
    if early:
        path.touch()
    else:
        timer.start()
    cancellation = Cancellation()
    with cancellation.installed(), pytest.raises(CancelledError), cancellation.listening(home, BEAD):
        time.sleep(30)
    assert not requested(home, BEAD)
    timer.cancel()


def test_a_request_for_another_bead_is_not_ours(home):
    cancellation = Cancellation()
    other = request_path(home, "coder-general-00000002")
    with cancellation.installed(), cancellation.listening(home, BEAD):
        other.touch()
        time.sleep(0.2)
    assert other.exists()
    assert not cancellation.cancelled


def test_the_next_bead_of_a_process_is_not_behind_the_shield_of_the_one_before(home):
    cancellation = Cancellation()
    cancellation.shield()
    with cancellation.installed(), cancellation.listening(home, BEAD), pytest.raises(CancelledError):
        hit(signal.SIGINT)

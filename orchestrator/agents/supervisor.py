"""The supervisor: what PID 1 of a leaf does between its first event and its exit code.

Order matters for speed: what both sides need for the agent's first event (json) is loaded once, before the fork;
what only the end needs is loaded later. It ends everything at the deadline, takes the agent's events, and writes
the outcome after the last process of the leaf is gone, so that nothing inside can change it.

Exit codes: 0 completed, 3 failed, 4 timed out, 5 killed by the memory limit, 6 model denied or budget exhausted,
143 interrupted.
"""

from __future__ import annotations

import os
import select
import signal
import time

from orchestrator.agents import process
from orchestrator.agents.confine import confine
from orchestrator.agents.places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from orchestrator.agents.intake import Intake
    from orchestrator.agents.outcome import Conclusion
    from orchestrator.agents.sink import Sink


TICK = 0.25  # seconds between two looks at the clock and at held-back signals
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
RATE = 4 * 1024 * 1024  # bytes of events per second; beyond it the agent is held back
OVER_TCP = frozenset({"hermes", "command"})  # agents that know no Unix socket
AGENTS = frozenset({"light", *OVER_TCP})


def main(agent: str, first_event: bytes, places: Places | None = None) -> int:
    """Run the agent of this leaf to its end and return the exit code."""
    process.become_untraceable()
    confine()
    process.block_stop_signals()
    return Supervisor(agent, first_event, places or Places()).run()


class Clock:
    """When the agent is asked to end, and when everything is killed. Monotonic seconds."""

    def __init__(self, deadline: float | None) -> None:
        """``deadline`` is the leaf's own end in epoch seconds, from the principal."""
        self.started = time.time()
        self._now = time.monotonic()
        self._span = float("inf") if deadline is None else max(deadline - self.started, 0.1)
        self.term_at = self._now + self._span - min(GRACE, self._span * 0.2)
        self.kill_at = self._now + self._span - min(1.0, self._span * 0.05)

    def limit(self, wall: float) -> None:
        """Apply the brief's own time limit, in seconds; the agent has half a second to notice it by itself."""
        self.term_at = min(self.term_at, self._now + wall + 0.5)
        self.kill_at = min(self.kill_at, self.term_at + GRACE)

    def stop_now(self) -> None:
        """SIGTERM is being sent: SIGKILL follows after the grace."""
        self.kill_at = min(self.kill_at, time.monotonic() + GRACE)


class Supervisor:
    """One run of one agent."""

    def __init__(self, agent: str, first_event: bytes, places: Places) -> None:
        self.agent = agent
        self.places = places
        self.bead = os.environ.get("SCHOOL_BEAD", "")
        self.clock = Clock(_number(os.environ.get("SCHOOL_DEADLINE")))
        self.pid = 0
        self.wait_status: int | None = None
        self.stopped: str | None = None
        self._first_event = first_event
        self._relays: list[tuple[socket.socket, str]] = []  # listener, socket of the gate
        self._relay_pids: dict[int, int] = {}  # pid -> which one
        self._relay_restarts = 10
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> int:
        """Start, watch, conclude."""
        from orchestrator import layout
        from orchestrator.agents.intake import Intake
        from orchestrator.agents.sink import Sink, encode, open_events_file

        events, events_end = os.pipe2(os.O_CLOEXEC)
        output, output_end = os.pipe2(os.O_CLOEXEC)
        self._open_relays()
        problems = self._bring_what_setup_made()
        if self.agent in AGENTS:
            self.pid = process.fork(lambda: self._become_agent(events_end), stdout=output_end)
        self._output_end = output_end
        os.close(events_end)
        sink = Sink(1, open_events_file(f"{self.places.outbox}/{layout.EVENTS_FILE}"))
        sink.write(self._first_event, essential=True, to_stdout=False)
        intake = Intake(events, output, sink)
        brief = self._read_brief(sink)
        for problem in problems[:5]:
            sink.write(encode("warning", {"text": f"a file that the repository's setup made is missing: {problem}"}))
        if self.agent not in AGENTS:
            sink.write(encode("error", {"text": f"there is no agent {self.agent!r}"}), essential=True)
        for number in range(len(self._relays)):
            self._start_relay(number)
        wall = (brief.get("limits") or {}).get("wall_s")
        if isinstance(wall, (int, float)) and wall > 0:
            self.clock.limit(wall)
        if self.pid:
            self._watch(intake, sink)
        process.reap_until_alone(self._groups(), seconds=2.0)
        intake.drain()
        conclusion = self._conclude(intake, sink)
        intake.close()
        os.close(self._output_end)
        sink.write(encode("entry.finished", {"exit_code": conclusion.exit_code}), essential=True)
        sink.flush(seconds=2.0)
        sink.close()
        return conclusion.exit_code

    def _bring_what_setup_made(self) -> list[str]:
        if not os.path.isdir(self.places.made):  # noqa: PTH112 - pathlib is not imported here
            return []
        from orchestrator.agents import made

        return made.bring(self.places.made, self.places.workspace)

    def _become_agent(self, events: int) -> int:
        """In the forked child: run the agent's own code."""
        os.chdir(self.places.workspace)
        if self.agent == "hermes":
            python = f"{self.places.hermes}/bin/python"
            script = f"{os.path.dirname(__file__)}/hermes.py"  # noqa: PTH120 - pathlib is not imported here
            os.set_inheritable(events, True)
            os.environ["SCHOOL_EVENTS_FD"] = str(events)
            try:
                os.execv(python, [python, "-I", script])  # noqa: S606 - exec is the point: another Python
            except OSError as error:
                from orchestrator.agents.events import Emitter

                reason = f"this image has no Hermes layer that runs here ({error}); use --agent light"
                Emitter(events).finish("failed", reason)
                return 0
        from orchestrator.agents.events import Emitter

        if self.agent == "command":
            from orchestrator.agents import command

            return command.run(self.places, Emitter(events))
        from orchestrator.agents import light

        return light.run(self.places, Emitter(events))

    def _open_relays(self) -> None:
        """Listen for agents that know no Unix socket, and for programs that look for a proxy where one is granted."""
        way_out = os.path.exists(self.places.egress_socket)  # noqa: PTH110 - pathlib is not imported here
        if self.agent not in OVER_TCP and not way_out:
            return
        from orchestrator import layout
        from orchestrator.agents import relay

        if self.agent in OVER_TCP:
            self._relays.append((relay.listen(self.places.relay_port), self.places.gate_socket))
        if way_out:
            listener = relay.listen(layout.EGRESS_PORT)
            self._relays.append((listener, self.places.egress_socket))
            proxy = f"http://{layout.RELAY_HOST}:{listener.getsockname()[1]}"
            os.environ.update(dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy))
            os.environ.update(dict.fromkeys(("NO_PROXY", "no_proxy"), f"{layout.RELAY_HOST},localhost"))

    def _start_relay(self, number: int) -> None:
        """The listener is PID 1's, so connections wait in its backlog while a killed relay is replaced."""
        from orchestrator.agents import relay

        listener, path = self._relays[number]
        pid = process.fork(lambda: relay.serve(listener, path), stdout=self._output_end)
        self._relay_pids[pid] = number

    def _read_brief(self, sink: Sink) -> dict[str, Any]:
        import json

        from orchestrator.agents.sink import encode

        try:
            with open(self.places.brief, encoding="utf-8") as file:  # noqa: PTH123
                brief = json.load(file)
        except (OSError, ValueError) as error:
            sink.write(encode("error", {"text": f"the brief can't be read: {error}"}), essential=True)
            return {}
        return brief if isinstance(brief, dict) else {}

    def _watch(self, intake: Intake, sink: Sink) -> None:
        """Until the agent's process has ended: events, signals, clock."""
        allowance, refilled = float(RATE), time.monotonic()
        while self.wait_status is None:
            now = time.monotonic()
            allowance, refilled = min(RATE, allowance + (now - refilled) * RATE), now
            poller = select.poll()
            poller.register(self._wake, select.POLLIN)
            if not sink.full and allowance > 0:
                for pipe in (intake.events, intake.output):
                    if pipe.open:
                        poller.register(pipe.descriptor, select.POLLIN)
            if sink.waiting:
                poller.register(1, select.POLLOUT)
            end = self.clock.kill_at if self.stopped else self.clock.term_at
            for descriptor, _ in poller.poll(max(0.0, min(TICK, end - now)) * 1000 + 1):
                if descriptor == self._wake:
                    os.read(self._wake, 512)
                elif descriptor == 1:
                    sink.push()
            if not sink.full and allowance > 0:
                allowance -= intake.take()
            self._collect(process.reap())
            self._look_at_signals(intake)
            self._look_at_clock(intake)

    def _collect(self, ended: dict[int, int]) -> None:
        if self.pid in ended:
            self.wait_status = ended[self.pid]
        for number in [self._relay_pids.pop(pid) for pid in ended if pid in self._relay_pids]:
            if self._relay_restarts > 0:
                self._relay_restarts -= 1
                self._start_relay(number)

    def _look_at_signals(self, intake: Intake) -> None:
        """As PID 1 a sender inside the leaf has a pid here, one outside has none: only the latter counts."""
        if process.stop_requested(trust_any_sender=os.getpid() != 1) and self.stopped is None:
            self._stop("interrupted", intake)

    def _look_at_clock(self, intake: Intake) -> None:
        now = time.monotonic()
        if self.stopped is None and now >= self.clock.term_at:
            self._stop("timed_out", intake)
        if now >= self.clock.kill_at:
            if self.stopped is None:
                self._stop("timed_out", intake)
            process.kill_all(self._groups())
            self._await_death()

    def _stop(self, cause: str, intake: Intake) -> None:
        intake.drain()
        self.stopped = cause if intake.result is None else "after its result"
        self.clock.stop_now()
        process.signal_group(self.pid, signal.SIGTERM)
        process.signal_group(self.pid, signal.SIGCONT)  # a stopped process takes its SIGTERM once it runs

    def _await_death(self) -> None:
        limit = time.monotonic() + 2.0
        while self.wait_status is None and time.monotonic() < limit:
            ended = process.reap()
            self.wait_status = ended.get(self.pid)
            time.sleep(0.005)
        if self.wait_status is None:  # stuck in the kernel; the container's end takes it along
            self.wait_status = int(signal.SIGKILL)

    def _groups(self) -> list[int]:
        return [pid for pid in (self.pid, *self._relay_pids) if pid]

    def _conclude(self, intake: Intake, sink: Sink) -> Conclusion:
        from orchestrator.agents import outcome
        from orchestrator.agents.sink import clip, encode
        from orchestrator.errors import BookbagError

        stopped = self.stopped if self.stopped in outcome.STOPPED else None
        killed_by_us = self.stopped is not None
        conclusion = outcome.conclude(
            intake.result,
            stopped,
            self.wait_status,
            out_of_memory=not killed_by_us and process.memory_kills() > 0,
        )
        result = intake.result or {}
        output = clip(str(result.get("output") or ""), outcome.MAX_OUTPUT)
        for count, what in ((intake.refused, "refused"), (sink.dropped, "dropped at the size limit")):
            if count:
                sink.write(encode("warning", {"text": f"{count} events of the agent were {what}"}), essential=True)
        try:
            outcome.write_outcome(
                self.places.outbox,
                conclusion,
                bead=self.bead,
                agent=self.agent,
                output=output,
                usage=intake.usage,
                turns=intake.turns,
                started=self.clock.started,
                ended=time.time(),
            )
            outcome.write_bookbag(self.places.outbox, conclusion, bead=self.bead, output=output)
        except (OSError, BookbagError) as error:
            sink.write(encode("error", {"text": f"the outbox can't be written: {error}"}), essential=True)
        finished: dict[str, Any] = {"status": conclusion.status, "reason": conclusion.reason}
        if isinstance(code := result.get("command_exit_code"), int):
            finished["command_exit_code"] = code
        sink.write(encode("agent.finished", finished), essential=True)
        return conclusion


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None

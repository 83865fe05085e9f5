"""The supervisor outside a container: folders from the command line, not PID 1."""

import sys

from orchestrator.agents import supervisor
from orchestrator.agents.places import Places

agent, root, port = sys.argv[1:]
places = Places(
    workspace=f"{root}/workspace",
    inbox=f"{root}/inbox",
    outbox=f"{root}/outbox",
    home=f"{root}/home",
    gate_socket=f"{root}/gate/gate.sock",
    relay_port=int(port),
    hermes=f"{root}/no-hermes",
)
first = f'{{"v":1,"ts":1.0,"type":"entry.started","agent":"{agent}"}}\n'.encode()
sys.stdout.buffer.write(first)
sys.stdout.buffer.flush()
sys.exit(supervisor.main(agent, first, places))

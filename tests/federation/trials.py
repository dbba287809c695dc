"""Federations that run as real processes: started by the command, and looked at afterwards."""

import json
import os
import subprocess
from types import SimpleNamespace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from parties import APES, apes, new_run, take

from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import Layout
from apes.mathematics.randomness import SimulationSource
from apes.messages import Report
from apes.storage.database import read_database
from apes.wire.envelope import envelope_size, parse
from apes.wire.frames import FrameReader
from apes.wire.packing import unpacked
from apes.wire.release import Release


def told(*arguments):
    """What a command says as JSON."""
    code, output, errors = apes(*arguments, "--json")
    assert code == 0, errors
    return json.loads(output)


def begin_up(folder, **environment):
    """Start `apes federation up`."""
    command = [APES, "federation", "up", folder, "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, env={**os.environ, **environment})


def end_up(up, folder):
    """Wait until it is over, and stop whatever is left; exit code, output, errors."""
    try:
        output, errors = up.communicate(timeout=900)
    finally:
        up.kill()
        told("federation", "down", folder)
    return up.returncode, output, errors


def looked_at(folder, summary):
    """A federation that has run: its folders, terms, summary and what the shuffler released."""
    layout = Layout(folder)
    terms, run = FederationTerms.read(layout.analyzer / "terms.json"), layout.federation().run
    rows = read_database(layout.shuffler / "ledger.sqlite", "select run, release from rounds order by round")
    releases = [Release.decode(release) for of, release in rows if of == run]
    return SimpleNamespace(layout=layout, terms=terms, summary=summary, releases=releases, run=run)


def sealed(trained, number):
    """The envelopes that the analyzer relayed in a round."""
    reader = FrameReader(envelope_size(trained.terms.dimensions, trained.terms.levels))
    data = (trained.layout.analyzer / "run" / "rounds" / f"{number:06d}.sealed").read_bytes()
    return [parse(frame, trained.terms.dimensions, trained.terms.levels) for frame in reader.feed(data)]


def opened(trained, number):
    """Budgets and levels of a round, opened with the shuffler's key."""
    key = X25519PrivateKey.from_private_bytes((trained.layout.shuffler / "shuffler.key").read_bytes())
    shape = trained.terms.dimensions, trained.terms.levels
    return [(budget, unpacked(data, *shape)) for budget, data in (item.open(key) for item in sealed(trained, number))]


def simulated(trained):
    """The run of the simulation on the same draws: the same sealed reports, opened, collected and concluded by it."""
    agreed, run = trained.terms, new_run(trained.layout)
    for number in range(1, trained.summary["rounds"] + 1):
        reports = opened(trained, number)
        collector = agreed.terms.collector(len(reports), agreed.dimensions, SimulationSource(1, number))
        for user, (budget, levels) in enumerate(reports):
            collector.add(Report(levels[np.newaxis], np.array([budget]), user, 0))
        take(run, collector.release(), len(reports) - agreed.taken.distrusted)
    return run


def is_simulated(trained):
    """Whether model and figures are the simulation's, bit for bit; and the model is not where it began."""
    run = simulated(trained)
    with np.load(trained.layout.analyzer / "run" / "model.npz") as stored:
        assert stored["weights"].tobytes() == run.model().tobytes()
    assert (run.model() != new_run(trained.layout).model()).any()
    metrics = run.progress.metrics
    assert trained.summary["certified"]["epsilon_by_round"] == [entry.epsilon for entry in metrics]
    assert trained.summary["accuracy_by_round"] == [entry.accuracy for entry in metrics]
    return True

# SPDX-License-Identifier: Apache-2.0
"""The table of measures: what is compared, for how long, and with which target."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table: ours against another side's, and the least ratio (None: shown only).

    The ratio is over 1 where ours is better.
    """
    title: str
    unit: str
    against: str  # Other side: "ray", "raw", or "raw, singly" for raw's round with the suffix _singly.
    at_least: float | None
    number: int = 0  # Index of the number among those that a round returns.
    less_is_better: bool = False
    ours_at_most: float | None = None  # Limits of our own number.
    ours_at_least: float | None = None


@dataclasses.dataclass(frozen=True)
class Round:
    name: str
    rows: tuple[Row, ...]
    rounds: int = 5
    seconds: float = 1.0  # Seconds of a round on each side.
    cores: int = 1  # Number of cores that the measure needs.
    ours: str = "tandem"  # Our side: "tandem" in C, or "python".
    asked: str | None = None  # Name of the round on each side, if it is not `name`.


RATE = "1/s"
GIB = "GiB/s"
MICROSECONDS = "us"

GROUPS_PER_SECOND_MIN = 2000

ROUNDS = (
    Round("call_same_core", (
        Row("1:1 sync, one core", RATE, "ray", 30),
        Row("  p50 / blocking ping-pong", MICROSECONDS, "raw", 1 / 2, 1, True)), rounds=11),
    Round("call_own_cores", (
        Row("1:1 sync, a core each", RATE, "ray", 30),
        Row("  p50 / blocking ping-pong", MICROSECONDS, "raw", 1 / 0.3, 1, True)),
        rounds=11, cores=2),
    Round("pipelined", (
        Row("1:1 pipelined", RATE, "ray", 100),
        Row("  / framed echo, gathered", RATE, "raw", 0.2),
        Row("  / framed echo, one by one", RATE, "raw, singly", 0.2))),
    Round("two_by_two", (
        Row("n:n, 2x2", RATE, "ray", 100),
        Row("  / 2 framed echoes, gathered", RATE, "raw", 0.2),
        Row("  / 2 framed echoes, one by one", RATE, "raw, singly", 0.2)), cores=2),
    Round("call_mib", (
        Row("1:1 with 1 MiB", GIB, "ray", None),
        Row("  / memcpy twice", GIB, "raw", 0.7))),
    Round("put_large", (
        Row("put of 100 MiB", GIB, "ray", 4),
        Row("  / warm memcpy", GIB, "raw", 0.7))),
    Round("put_small", (Row("small put", RATE, "ray", 200),)),
    Round("get_small", (Row("small get", RATE, "ray", 100),)),
    Round("group", (Row("placement group life", RATE, "ray", 250, ours_at_least=GROUPS_PER_SECOND_MIN),)),
    Round("actor_life", (Row("actor created, called, killed", RATE, "ray", 150),), seconds=3.0),
    # The same program in Python on both.
    Round("py_call_same_core", (
        Row("Python: 1:1 sync, one core", RATE, "ray", 12, ours_at_least=20000),), asked="call_same_core",
          ours="python"),
    Round("py_call_own_cores", (
        Row("Python: 1:1 sync, a core each", RATE, "ray", 12, ours_at_least=20000),), cores=2, asked="call_own_cores",
          ours="python"),
    Round("py_pipelined", (
        Row("Python: 1:1 pipelined", RATE, "ray", 12, ours_at_least=60000),), asked="pipelined", ours="python"),
    Round("py_call_mib", (
        Row("Python: 1:1 with 1 MiB", GIB, "ray", None),
        Row("  / the same in C", GIB, "tandem", None)), asked="call_mib", ours="python"),
    Round("py_put_large", (
        Row("Python: put of 100 MiB", GIB, "ray", None),
        Row("  / the same in C", GIB, "tandem", 0.8)), asked="put_large", ours="python"),
    Round("py_get_large", (
        Row("Python: get of 100 MiB", MICROSECONDS, "ray", None, less_is_better=True, ours_at_most=50),
        Row("  / json.loads of 2 bytes there", MICROSECONDS, "python, parse", None, less_is_better=True)),
          asked="get_large", ours="python"),
    Round("py_actor_up", (
        Row("Python: actor created, called", "ms", "ray", None, less_is_better=True, ours_at_most=10),),
          asked="actor_up", ours="python", seconds=2.0),
    Round("py_step_calls", (
        Row("Python: calls of a step, 16 ranks", "ms", "ray", None, less_is_better=True, ours_at_most=5),),
          asked="step_calls", ours="python"),
    Round("py_launch", (
        Row("Python: 8 actors of a launch", "ms", "ray", None, less_is_better=True, ours_at_most=500),),
          asked="launch", ours="python", seconds=2.0, rounds=3),
)

CLUSTER_UP = Row("cluster up from nothing", "s", "ray", 60, less_is_better=True)
NODE_MEMORY = Row("node daemon, PSS", "MiB", "ray", None, less_is_better=True)
STORE_MEMORY = Row("Redis against GCS, PSS", "MiB", "ray", None, less_is_better=True)
ACTOR_MEMORY = Row("idle actor, PSS, mean of 20", "MiB", "ray", None, less_is_better=True)
PYTHON_ACTOR_MEMORY = Row("Python: idle actor, PSS, of 20", "MiB", "ray", None, less_is_better=True)
NODE_MEMORY_MIB_MAX = 10
ACTOR_MEMORY_MIB_MAX = 2
PYTHON_ACTOR_MEMORY_MIB_MAX = 5.72  # 6 MB
# Ray publishes a number for 10,000 actors on at least 64 nodes, which one machine cannot repeat.
RECORDS = Row("actors registered and named", RATE, "ray, published", 40)
RECORDS_PUBLISHED = 650

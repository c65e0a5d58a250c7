"""What the tasks of `cordee vet` say to each other: the questions and answers of a vetting, as agents have them, and four more."""

from __future__ import annotations

from typing import NamedTuple, Union

from cordee.systems.vetting.node.judge.node_link import Answer, Question
from cordee.wire.messages import Checks, ChecksDone, ChecksOutput, Clock, FreePorts, Kinds, Port, Time


class Leads(NamedTuple):
    """The first message of the one who conducts: on which node it runs, counted from 0."""

    conductor: int


class Ping(NamedTuple):
    """A sign of life of the one who conducts; answered by `Pong`."""


class EndVetting(NamedTuple):
    """The vetting has ended: the exit code of all tasks."""

    code: int


class Pong(NamedTuple):
    """A task lives."""


FromConductor = Union[Leads, Ping, EndVetting, Question]
FromTask = Union[Pong, Answer]

FROM_CONDUCTOR: Kinds[FromConductor] = Kinds(
    welcome=Leads, ping=Ping, bye=EndVetting, checks=Checks, port=Port, clock=Clock
)
FROM_TASK: Kinds[FromTask] = Kinds(
    pong=Pong, checks_output=ChecksOutput, checks_done=ChecksDone, port=FreePorts, clock=Time
)

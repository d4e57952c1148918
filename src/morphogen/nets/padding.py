"""Padding: the sizes of a plan rounded up to a few, so that few graphs serve all plans."""

from collections.abc import Sequence
from dataclasses import replace

from morphogen.nets.plan import Crew, Group, Plan
from morphogen.vocab.blueprint import Blueprint

_WIDTH = 2 * len(Blueprint) - 1  # numbers that describe a crew


def bucket(rows: int, envs: int) -> int:
    """The smallest size of 0, 1, 2, 4 .. envs, 2 envs, 4 envs .. that has room for so many rows."""
    if rows > envs:
        return envs * _power(-(-rows // envs))
    return min(_power(rows), envs)


def _power(number: int) -> int:
    """The smallest power of two that is not smaller; 0 for 0."""
    return 1 << (number - 1).bit_length() if number else 0


def padded(plan: Plan, envs: int) -> Plan:
    """The plan with every size at its bucket.  Padding changes results by rounding only."""
    return Plan(
        train=_padded(plan.train, envs),
        evaluate=_padded(plan.evaluate, envs),
        births=tuple(bucket(count, envs) for count in plan.births),
        rows=tuple(bucket(count, envs) for count in plan.rows),
        padded=True,
    )


def _padded(crews: tuple[Crew, ...], envs: int) -> tuple[Crew, ...]:
    return tuple(Crew(tuple(_roomy(group, envs) for group in crew.groups), bucket(crew.gates, envs)) for crew in crews)


def _roomy(group: Group, envs: int) -> Group:
    return replace(group, added=bucket(group.added, envs), multiplied=bucket(group.multiplied, envs))


def room(crews: tuple[Crew, ...]) -> tuple[int, ...]:
    """The sizes of crews as numbers that can be compared: per slot gates, then added and multiplied per blueprint."""
    found: list[int] = []
    for crew in crews:
        halves = {group.blueprint: (group.added, group.multiplied) for group in crew.groups}
        found += [crew.gates, *(half for b in Blueprint if b is not Blueprint.NOOP for half in halves.get(b, (0, 0)))]
    return tuple(found)


def crews_of(numbers: Sequence[int]) -> tuple[Crew, ...]:
    """The inverse of `room`."""
    return tuple(_crew_of(numbers[at : at + _WIDTH]) for at in range(0, len(numbers), _WIDTH))


def _crew_of(numbers: Sequence[int]) -> Crew:
    halves = zip(list(Blueprint)[1:], numbers[1::2], numbers[2::2], strict=True)
    return Crew(tuple(Group(*half) for half in halves if any(half[1:])), numbers[0])

"""The same work on a few things at once: numpy lets other threads go on while it goes over long arrays."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from threading import Thread
from typing import TypeVar

__all__ = ["each"]

T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Return what `work` makes of each thing, in their order; every thing but the last has a thread of its own.

    Ctrl-C ends it at once: nobody waits for the threads then. Of several errors that of the first thing is raised.
    """
    numbered = list(enumerate(things))
    done: dict[int, R] = {}
    failed: dict[int, Exception] = {}

    def one(number: int, thing: T) -> None:
        try:
            done[number] = work(thing)
        except Exception as error:
            failed[number] = error

    context = contextvars.copy_context
    threads = [Thread(target=context().run, args=(one, *other), daemon=True) for other in numbered[:-1]]
    for thread in threads:
        thread.start()
    for last in numbered[-1:]:
        one(*last)
    for thread in threads:
        thread.join()
    if failed:
        raise failed[min(failed)]
    return [done[number] for number in sorted(done)]

from __future__ import annotations

import signal
import threading

import pytest

from evo.interrupts import terminable


def test_sigterm_becomes_keyboard_interrupt_inside_only() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_threads_may_use_it() -> None:
    errors: list[Exception] = []

    def use() -> None:
        try:
            with terminable():
                pass
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert errors == []

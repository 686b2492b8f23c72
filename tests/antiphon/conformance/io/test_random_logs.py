"""Random logs: what they must hold to tell a wrong core from a right one."""

from antiphon.conformance.io.random_logs import RandomLog


def test_random_logs_have_epochs_that_no_double_holds_beside_small_ones() -> None:
    for seed in range(4):
        epochs = {writer.epoch for writer in RandomLog(seed).everyone}
        assert {int(float(epoch)) == epoch for epoch in epochs} == {True, False}

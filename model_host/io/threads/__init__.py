"""Threads of a host: the one that owns the engine, those beside it, and their queues."""

from model_host.io.threads.engine_thread import EngineCounts, EngineThread, delete_checkpoints
from model_host.io.threads.own_thread import in_own_thread
from model_host.io.threads.turns import Turns

__all__ = [
    "EngineCounts",
    "EngineThread",
    "Turns",
    "delete_checkpoints",
    "in_own_thread",
]

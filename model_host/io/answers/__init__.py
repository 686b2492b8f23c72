"""Answers, from a request that is taken to its GENERATION."""

from model_host.io.answers.host import Host
from model_host.io.answers.request_handler import RequestHandler

__all__ = [
    "Host",
    "RequestHandler",
]

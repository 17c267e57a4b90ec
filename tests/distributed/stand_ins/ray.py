"""Stands in for Ray on one machine: actors are processes that run one call after another. It has what sluice.distributed.ray asks for."""

import multiprocessing
import multiprocessing.connection
import types

_processes = multiprocessing.get_context("spawn")
_initialized = False
started = []  # the resources that each actor was to have


class RayTaskError(Exception):
    def __init__(self, cause):
        super().__init__(f"ray: {cause}")
        self.cause = cause


def is_initialized():
    return _initialized


def init():
    global _initialized
    _initialized = True


def _serve(cls, pipe):
    actor = cls()
    while True:
        name, given = pipe.recv()
        try:
            pipe.send((True, getattr(actor, name)(*given)))
        except Exception as error:
            pipe.send((False, RuntimeError(f"{type(error).__name__}: {error}")))


class _Reference:
    def __init__(self, actor):
        self.actor, self.answer = actor, None

    def get(self):
        if self.answer is None:
            try:
                self.answer = self.actor.pipe.recv()
            except EOFError:
                self.answer = (False, RuntimeError("the actor died"))
        good, value = self.answer
        if not good:
            raise RayTaskError(value)
        return value


class _Actor:
    def __init__(self, cls):
        self.pipe, theirs = _processes.Pipe()
        self.process = _processes.Process(target=_serve, args=(cls, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def __getattr__(self, name):
        def remote(*given):
            self.pipe.send((name, given))
            return _Reference(self)

        return types.SimpleNamespace(remote=remote)


class _Remote:
    def __init__(self, cls, options=None):
        self.cls, self.given = cls, options

    def options(self, **options):
        return _Remote(self.cls, options)

    def remote(self):
        started.append(self.given)
        return _Actor(self.cls)


def remote(cls):
    return _Remote(cls)


def get(references):
    return [one.get() for one in references] if isinstance(references, list) else references.get()


def wait(references, num_returns):
    pipes = {one.actor.pipe: one for one in references if one.answer is None}
    done = [one for one in references if one.answer is not None]
    if not done:
        done = [pipes[pipe] for pipe in multiprocessing.connection.wait(list(pipes))]
    return done[:num_returns], [one for one in references if one not in done[:num_returns]]


def kill(actor):
    actor.process.kill()
    actor.process.join()


def get_runtime_context():
    return types.SimpleNamespace(get_node_id=lambda: "node")


util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

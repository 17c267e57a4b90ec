"""Modules called torch.*, whose names are those of Sluice's modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType
from typing import Any, Iterable, Optional

from sluice._names.left_out import left_out
from sluice.mock_torch._private import ALSO, BASES, MEMBERS, PRIVATE

TORCH_VERSION = "2.13.0"  # whose names and behaviour Sluice follows
OTHER_NAMES = {"torch.onnx"}  # Sluice's module of that name has names of its own


def sluice_name(name: str) -> str:
    """The module of Sluice that stands for a module of torch."""
    return "sluice" + name.removeprefix("torch")


class ModuleWrapper(ModuleType):
    """A module of torch's name; what it has is looked up in the module that stands for it.

    finder: makes the modules within it, also for code that runs when `import torch` gives torch again.
    """

    def __init__(self, name: str, module: ModuleType, finder: DynamicMockModule) -> None:
        super().__init__(name, module.__doc__)
        self._module, self._finder = module, finder
        if name == "torch":
            self.__version__ = TORCH_VERSION
        self.__all__ = [n for n in getattr(module, "__all__", dir(module)) if not n.startswith("_")]
        # Classes are found in its __dict__, too, which packages walk.
        replaced = MEMBERS.get(name, {})
        vars(self).update({n: v for n, v in vars(module).items() if isinstance(v, type) and n in self.__all__ and n not in replaced})

    def __getattr__(self, name: str) -> Any:
        if name in MEMBERS.get(self.__name__, ()):
            return MEMBERS[self.__name__][name]
        if f"{self.__name__}.{name}" in PRIVATE and (name.startswith("_") or not hasattr(self._module, name)):
            return self._finder.module(f"{self.__name__}.{name}")
        if self._module is PRIVATE.get(self.__name__) and not name.startswith("__"):
            return getattr(self._module, name)
        if name == "torch" == self.__name__:
            return self
        if not name.startswith("_") or name in BASES.get(self.__name__, ()):  # other private names are torch's own
            value = getattr(self._module, name, self)
            for also in ALSO.get(self.__name__.rpartition(".")[0], ()):
                value = getattr(importlib.import_module(also), name, self) if value is self else value
            if isinstance(value, ModuleType) and _is_public(value.__name__) and value.__name__.startswith("sluice"):
                return self._finder.module("torch" + value.__name__.removeprefix("sluice"))
            if value is not self:
                return value
            if _exists(f"{self._module.__name__}.{name}"):
                return self._finder.module(f"{self.__name__}.{name}")
            entry = left_out(name) if self._finder.lazy else None
            if entry is not None and entry.counts:
                return DummyModule(f"{self.__name__}.{name}")
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}': Sluice stands for torch here "
                             f"(sluice.mock_torch), and has no {sluice_name(self.__name__)}.{name}")

    def __dir__(self) -> Iterable[str]:
        return self.__all__

    def __repr__(self) -> str:
        return f"<module '{self.__name__}', which is {self._module.__name__}>"


class DummyModule(ModuleType):
    """Stands for a module of torch that Sluice lacks: what is taken from it fails when it is used."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return DummyModule(f"{self.__name__}.{name}")

    def _refuse(self) -> Any:
        raise NotImplementedError(f"{self.__name__}: used, but Sluice has nothing of the kind (sluice.mock_torch, lazy); "
                                  "give a replacement in extra_dict")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._refuse()

    def __getitem__(self, item: Any) -> Any:  # as types are written
        return self

    def __mro_entries__(self, bases: Any) -> Any:
        return self._refuse()

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.__name__}, which Sluice lacks>"


class _Torch(Distribution):
    """The answers of `importlib.metadata` about torch, for packages that ask for its version."""

    def read_text(self, filename: str) -> Optional[str]:
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{path}: torch is Sluice here (sluice.mock_torch); it has no files")


class DynamicMockModule(MetaPathFinder, Loader):
    """Finds the modules of torch among Sluice's."""

    def __init__(self, lazy: bool = False, verbose: bool = False, extra: Any = {}) -> None:
        self.lazy, self.verbose, self.extra = lazy, verbose, extra
        self._made: dict[str, ModuleType] = {}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if not _package_is_torch(fullname) or self._stands_for(fullname) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True, origin="sluice.mock_torch")

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Iterable[Distribution]:
        return [_Torch()] if context.name in (None, "torch") else []

    def _stands_for(self, fullname: str) -> Any:
        """A module, its name, or DummyModule; None: there is no such module."""
        if fullname in self.extra:
            return self.extra[fullname]
        ours = sluice_name(fullname)
        if fullname not in OTHER_NAMES and _is_public(ours) and (ours in sys.modules or _exists(ours)):
            return ours
        return PRIVATE.get(fullname, DummyModule if self.lazy else None)

    def module(self, fullname: str) -> ModuleType:
        """The module of that name, which something stands for."""
        if fullname not in self._made:
            there = self._stands_for(fullname)
            if self.verbose:
                print(f"mock_torch: {fullname} is {there if isinstance(there, str) else getattr(there, '__name__', there)}")
            there = importlib.import_module(there) if isinstance(there, str) else there
            self._made[fullname] = DummyModule(fullname) if there is DummyModule else ModuleWrapper(fullname, there, self)
        return self._made[fullname]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _package_is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def _is_public(module: str) -> bool:
    return not any(part.startswith("_") for part in module.split("."))


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a module that is no package
        return False

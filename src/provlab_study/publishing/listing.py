"""What a notebook says of itself: its title, its finding, and whether it takes models of a reader's own."""

import re
from pathlib import Path

import yaml

from provlab import provenance
from provlab.errors import ParameterError, one_line
from provlab_study.publishing.parameters import cells_of, parameters_of

#: how the paragraph of a first cell begins that says which models a page takes, or why it takes none
OWN_MODELS = "**Your own models.** "
#: why a page takes none that says nothing of it: it is given no model, and no setting but the profile
_READS_PAGES = "It shows what other pages found."
#: the C library's, ten times as fast, where PyYAML came with it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def plain(text: str) -> str:
    """Words without their markup."""
    return " ".join(re.sub(r"\{[a-z]+\}`[^`]*`|[*`$\\]|\[([^]]*)\]\([^)]*\)", r"\1", text).split())


def title_and_finding(path: Path) -> tuple[str, str]:
    """Return a notebook's title, and the first sentence of the finding under it, without their markup."""
    sources = [source for source, _ in cells_of(path)]
    title, *paragraphs = sources[0].split("\n\n") if sources else [path.stem]
    finding = plain(paragraphs[0]) if paragraphs else ""
    return plain(title).lstrip("# "), re.split(r"(?<=[.?]) ", finding)[0]


def on_own_models(path: Path) -> tuple[str, str]:
    """Whether a page runs on any models of one's own, "yes", "some" or "no", and what its first cell says of that."""
    first = cells_of(path)[0][0]
    said = [plain(part.removeprefix(OWN_MODELS)) for part in first.split("\n\n") if part.startswith(OWN_MODELS)]
    if not any(parameter.takes_models for parameter in parameters_of(path).values()):
        return "no", "".join(said) or _READS_PAGES
    return ("some", said[0]) if said else ("yes", "")


def minutes_of_pages() -> dict[str, float]:
    """Minutes of the notebooks on the study's models, as the profiles have them, read without what would run them."""
    folder = provenance.project_root() / "notebooks" / "profiles"
    return {name: cost for path in folder.glob("*.yml") for name, cost in _minutes(path).items()}


def _minutes(profile: Path) -> dict[str, float]:
    try:
        experiments = yaml.load(profile.read_text(encoding="utf-8"), _LOADER)["experiments"]  # makes plain data alone
        return {item["notebook"]: item["minutes"] for item in experiments if "minutes" in item}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ParameterError(f"{profile} is no plan that can be read ({one_line(error)}); restore it") from error

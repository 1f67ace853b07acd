"""A report for machines: an in-toto Statement v1, and CycloneDX 1.6 with the same predicate in each model's pedigree.

Both are functions of ``result.json``, so that neither can say anything else without being noticed. Nothing here is a
signature: `SIGN` makes one by a key of one's own, without a network, and the last of `COMMANDS` one by an account,
in a public log. Python's libraries for it need a network (sigstore) or look after keys, as OpenSSH does already.
"""

import json
from collections.abc import Mapping
from typing import Any

from provlab import statistics as registry
from provlab.report.decide import REJECTIONS
from provlab.report.lineage import short_names

SHOWN = "shown"  # in the JSON of a tree, of the parent that an edge names
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:provlab:evidence:1"
SIGN = "ssh-keygen -Y sign -n provlab -f KEY < FOLDER/statement.json > FOLDER.sig"
COMMANDS = (
    "provlab verify FOLDER",
    SIGN,
    "cosign attest-blob --statement FOLDER/statement.json --bundle FOLDER.sigstore.json",
)
TOLERANCE = 1e-3  # relative, where another processor, number of threads or library takes sums in another order
BULK = {"examples", "clusters", "rho"}  # of a result, left to ``result.json``
Json = dict[str, Any]


def files_read(model: Mapping[str, Any]) -> Json:
    """Files of a model that an answer rests on: SHA-256 and size, by name."""
    return {**model["files"], **model.get("tokenizer", {})}


def as_text(content: Any) -> str:
    """Write JSON the one way in which folders have it."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def predicate(content: Mapping[str, Any]) -> Json:
    """Return what was asked, what was read, what came out under which assumptions, and how exactly it comes out again.

    Parameters
    ----------
    content
        Contents of ``result.json``: question, arguments, machine, and the result's own JSON.
    """
    result = {key: value for key, value in content["result"].items() if key not in BULK}
    names = result.get("statistics", ())
    if isinstance(names, dict):  # numbers of each block are left to ``result.json`` too
        blocks = {name: [block["block"] for block in row["blocks"]] for name, row in names.items()}
        result["statistics"] = {name: {**row, "blocks": blocks[name]} for name, row in names.items()}
    measured = result.get("measurements", ())  # of a tree: no tests, and read all the same
    return {
        **{key: content[key] for key in ("question", "arguments", "machine")},
        "read": {name: registry.get(name).reads for name in (*names, *measured)} or {"draws": "of both models"},
        "units_matched": result["parameters"].get("units") or "all",
        "result": result,
        "tolerance": {"relative": TOLERANCE, "where": "processor, threads or versions differ; else bit for bit"},
    }


def statement(content: Mapping[str, Any], files: Mapping[str, str]) -> Json:
    """Bind the predicate to the models' files, each by its SHA-256, and to other files of the folder.

    Files of tokenizers are among them where the answer rests on these: another one would be given another text.
    """
    subjects = [
        {"name": f"{model['source']}/{name}", "digest": {"sha256": file["sha256"]}}
        for model in content["result"]["models"]
        for name, file in files_read(model).items()
    ]
    about = {**predicate(content), "folder": dict(files)}
    return {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": about}


def _edges(result: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Pairs that are kin, and whether the first is shown to be a parent of the second; later is not enough."""
    if result.get("outcome") in REJECTIONS:
        a, b = (model["source"] for model in result["models"])
        return [(a, b, False)]
    families = result.get("families", ())
    return [(edge["a"], edge["b"], edge["parent"] == SHOWN) for family in families for edge in family["edges"]]


def pedigree(content: Mapping[str, Any]) -> str:
    """Write CycloneDX 1.6: one component a model; ancestors where a parent is shown, else variants."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType, Pedigree
    from cyclonedx.output.json import JsonV1Dot6

    models = {model["source"]: model for model in content["result"]["models"]}
    names, edges = short_names(list(models)), _edges(content["result"])
    notes = json.dumps({"predicateType": PREDICATE, "predicate": predicate(content)})

    def component(source: str, ref: str, kin: Pedigree | None = None) -> Component:
        files = files_read(models[source]).values()
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=file["sha256"]) for file in files]
        kind, commit = ComponentType.MACHINE_LEARNING_MODEL, models[source]["commit"]
        return Component(name=names[source], type=kind, bom_ref=ref, version=commit, hashes=hashes, pedigree=kin)

    def related(source: str) -> Pedigree:
        parents = [a for a, b, directed in edges if directed and b == source]
        others = [b if a == source else a for a, b, directed in edges if not directed and source in (a, b)]
        ancestors, variants = ([component(kin, f"{kin} of {source}") for kin in listed] for listed in (parents, others))
        return Pedigree(ancestors=ancestors, variants=variants, notes=notes)

    bom = Bom(components=[component(source, source, related(source)) for source in models])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"

# SPDX-License-Identifier: Apache-2.0
"""python -m tandem._job_plan: says what a job library in Python declares, before any actor of the job exists.

colocate/job/python_library.c runs this program. Descriptor 3 has the request, descriptor 4 gets the reply, both JSON.
"""
import json
import os
import traceback

from tandem import _job_module
from tandem.job import Context


def describe(request):
    """Return the reply to a request, a dict."""
    module = _job_module.load_module(request["config"])
    classes = {"trainer": module.Trainer, "engine": module.Engine}
    ranks = []
    for rank in request["ranks"]:
        context = Context(request["config"], rank["rank"], rank["ranks_count"], rank["engine"], request["seed"],
                          tensors_bytes=rank["tensors_bytes"])
        ranks.append([{"tag": tag, "size_bytes": size_bytes, "keep": keep, "outside": outside}
                      for tag, size_bytes, keep, outside in _job_module.regions_of(classes[rank["kind"]], context)])
    return {"name": module.__name__, "devices": getattr(module, "devices", "host"), "ranks": ranks}


def main():
    """Read the request, write the reply."""
    with open(3, encoding="utf-8") as file:
        request = json.load(file)
    try:
        reply = describe(request)
    except BaseException as error:
        traceback.print_exc()
        reply = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(4, "w", encoding="utf-8") as file:
        json.dump(reply, file)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_files.py BUILD - the files of scripts/launchers, as far as they can be checked without what runs them.

The unit of systemd is verified by systemd itself.  The JobSet is read as YAML, and the names of its fields are compared
with those of the API; no Kubernetes is asked.  Of the container file only the names of the packages are compared.
"""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "scripts" / "launchers"
EXPOSURE_MAX = 50  # Largest exposure of the unit by `systemd-analyze security`, in tenths.

# Names of fields of jobset.x-k8s.io/v1alpha2, batch/v1 and v1 that the manifest may use.  None: any text or number.
POD = {"restartPolicy": None, "terminationGracePeriodSeconds": None,
       "securityContext": {"runAsNonRoot": None, "runAsUser": None, "seccompProfile": {"type": None}},
       "containers": {"name": None, "image": None, "command": None, "args": None,
                      "env": {"name": None, "value": None, "valueFrom": {"fieldRef": {"fieldPath": None}}},
                      "ports": {"name": None, "containerPort": None},
                      "resources": {"requests": {"cpu": None, "memory": None}, "limits": {"memory": None}},
                      "securityContext": {"allowPrivilegeEscalation": None, "capabilities": {"drop": None}},
                      "volumeMounts": {"name": None, "mountPath": None, "readOnly": None}},
       "volumes": {"name": None, "secret": {"secretName": None}, "emptyDir": {"medium": None, "sizeLimit": None}}}
JOB = {"completionMode": None, "parallelism": None, "completions": None, "backoffLimit": None, "template": {"spec": POD}}
JOBSET = {"apiVersion": None, "kind": None, "metadata": {"name": None},
          "spec": {"network": {"enableDNSHostnames": None, "subdomain": None}, "failurePolicy": {"maxRestarts": None},
                   "replicatedJobs": {"name": None, "replicas": None, "template": {"spec": JOB}}}}


def unknown_fields(value, names, path=""):
    """Lists the paths of the fields of a document that the table of names does not have."""
    if isinstance(value, list):
        return [found for element in value for found in unknown_fields(element, names, path)]
    if not isinstance(value, dict):
        return []
    if names is None:
        return [path]
    return [found for name, field in value.items()
            for found in ([f"{path}.{name}"] if name not in names
                          else unknown_fields(field, names[name], f"{path}.{name}"))]


class LauncherFiles(unittest.TestCase):
    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
    def test_unit_is_verified_by_systemd(self):
        with tempfile.TemporaryDirectory() as directory:
            unit = pathlib.Path(directory, "tandem@head.service")
            unit.write_text((FILES / "tandem@.service").read_text().replace("/usr/bin/tandem", str(BUILD / "tandem")))
            done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}",
                                   "--no-pager", str(unit)], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-200:])

    def test_options_in_the_files_exist(self):
        start = subprocess.run([BUILD / "tandem", "start", "--help"], capture_output=True, text=True, check=True).stdout
        for text in ((FILES / "tandem@.service").read_text(), (FILES / "jobset.yaml").read_text()):
            for line in re.findall(r"TANDEM_OPTIONS=.*|tandem launch .*? -- |tandem start .*", text):
                for option in re.findall(r"--[a-z][a-z-]+", line):
                    self.assertIn(option, start)

    @unittest.skipIf(importlib.util.find_spec("yaml") is None, "the Python package yaml is missing")
    def test_jobset_is_yaml_with_known_fields(self):
        import yaml  # pylint: disable=import-outside-toplevel
        document = yaml.safe_load((FILES / "jobset.yaml").read_text())
        self.assertEqual(unknown_fields(document, JOBSET), [])
        self.assertEqual(unknown_fields({"kind": 1, "spec": {"networks": 1}}, JOBSET), [".spec.networks"])
        job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
        container = job["template"]["spec"]["containers"][0]
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        self.assertEqual(int(variables["TANDEM_LAUNCH_NODES"]), job["completions"])
        self.assertEqual(job["parallelism"], job["completions"])
        jobs = document["spec"]["replicatedJobs"][0]["name"]
        head = f"{document['metadata']['name']}-{jobs}-0-0.{document['spec']['network']['subdomain']}"
        self.assertEqual(variables["TANDEM_LAUNCH_HEAD"], f"{head}:{container['ports'][0]['containerPort']}")

    def test_container_file_installs_what_the_library_links(self):
        needed = set(re.findall(r"^lib(\w+?)-?[\d.-]*-dev$", (ROOT / "scripts" / "packages.txt").read_text()
                                .split("[test]")[0].replace("libc6-dev", ""), re.M))
        installed = (FILES / "Containerfile").read_text()
        for name in needed:
            self.assertIn(f"lib{name}", installed)
        self.assertIn("redis-server", installed)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)

"""Reads exported flavors and nova.conf with Nova's own code. Arguments: directories of exports."""

import json
import pathlib
import sys

import nova.conf
from nova import config, exception, objects
from nova.api.validation.extra_specs import validators
from nova.pci import devspec, request as pci_request
from nova.virt import hardware

objects.register_all()


def constraints(flavor, specs):
    """What Nova would ask of a host for this flavor, with an image that says nothing."""
    made = objects.Flavor(
        id=1, flavorid=flavor["name"], name=flavor["name"], vcpus=flavor["vcpus"], memory_mb=flavor["ram"],
        root_gb=flavor["disk"], extra_specs=specs)
    image = objects.ImageMeta.from_dict({"properties": {}})
    return hardware.numa_get_constraints(made, image)


def check_flavor(flavor):
    specs = flavor["properties"]
    for name, value in specs.items():
        validators.validate(name, value)
    topology = constraints(flavor, specs)
    cells = topology.cells if topology else []
    assert len(cells) == int(specs.get("hw:numa_nodes", "0")), (flavor["name"], cells)
    if specs.get("hw:cpu_policy") == "dedicated":
        assert sum(len(cell.pcpuset) for cell in cells) == flavor["vcpus"], flavor["name"]
        assert sum(cell.memory for cell in cells) == flavor["ram"], flavor["name"]
    for number, cell in enumerate(cells):
        wanted = specs.get(f"hw:numa_cpus.{number}")
        if wanted:
            assert cell.pcpuset == hardware.parse_cpu_spec(wanted), flavor["name"]


def check_conf(path):
    """As nova-compute reads it; Nova itself refuses sets that overlap."""
    nova.conf.CONF.reset()
    config.parse_args(["nova-compute", "--config-file", str(path)], configure_db=False, init_rpc=False)
    dedicated, shared = hardware.get_cpu_dedicated_set(), hardware.get_cpu_shared_set()
    assert not (dedicated or set()) & (shared or set()), path
    pci_request.get_alias_from_config.cache_clear()
    aliases = pci_request.get_alias_from_config()
    for text in nova.conf.CONF.pci.device_spec:
        devspec.PciDeviceSpec(json.loads(text))
    return dedicated, aliases


def main():
    flavors = confs = 0
    known = set()
    for directory in map(pathlib.Path, sys.argv[1:]):
        for path in directory.rglob("nova.conf"):
            known.update(check_conf(path)[1])
            confs += 1
        for flavor in json.loads((directory / "flavors.json").read_text()):
            check_flavor(flavor)
            for alias in filter(None, flavor["properties"].get("pci_passthrough:alias", "").split(",")):
                assert alias.split(":")[0] in known, alias
            flavors += 1
    # What Nova refuses must fail here, or this says nothing.
    for name, value in [("hw:cpu_policy", "dedikated"), ("hw:cpu_polcy", "dedicated"), ("hw:mem_page_size", "5 apples")]:
        try:
            validators.validate(name, value)
        except exception.ValidationError:
            continue
        raise AssertionError(f"Nova accepts {name}={value}")
    print(f"{flavors} flavors, {confs} nova.conf")


main()

"""Every worker of the built-in trainer has a device of its own (jobs/engine/workers); some hold several roles."""

from jobs.catalog.role import ROLES, roles_of
from jobs.catalog.spec.placement import Placement
from jobs.catalog.spec.runspec import RunSpec


class NativePlacement:
    """Workers as the table of roles and the section `hardware` have them."""

    def pools(self, spec: RunSpec) -> dict[str, int]:
        """See Placement: roles without workers of their own, or with workers that share devices, are the policy's."""
        roles = tuple(roles_of(spec))
        apart = [role for role in roles if role.num_workers(spec) and not role.share_devices(spec)]
        held = "+".join(role.id for role in roles if role.id == "policy" or role not in apart)
        sizes = {role.id: role.num_workers(spec) * role.devices(spec) for role in apart}
        return {held if role == "policy" else role: size for role, size in sizes.items()}

    def workers(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        return {role.id: role.num_workers(spec) for role in roles_of(spec) if role.num_workers(spec)}

    def group(self, spec: RunSpec, role: str) -> int:  # noqa: ARG002
        """See Placement: rules compare with the ranks of the policy."""
        return spec.hardware.policy_ranks

    def num_engines(self, spec: RunSpec) -> int:
        """See Placement."""
        return ROLES["vllm"].num_workers(spec)


PLUGIN: Placement = NativePlacement()

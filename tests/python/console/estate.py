"""Objects of every kind that the console shows: for the checks of several files."""

from harness import API

READERS = [{"name": "read", "verbs": ["get", "list", "watch"], "users": ["reader"]}]


def fill(bench):
    """Two projects with an admin and a member, instances, a cluster, secrets, a team and keys. Returns keys by user.

    Each object that has access rules lets `reader` read it, and `owner` owns the secret `db`.
    """
    keys = {name: bench.user(name) for name in ("owner", "reader", "member", "lead", "nobody")}
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "blue"}, "spec": {"displayName": "Blue", "users": ["reader"]}})
    bench.ok("POST", f"{API}/clusters", {"metadata": {"name": "east"}, "spec": {"displayName": "East", "access": READERS}})
    for name, members in (("web", {"member": "user", "lead": "admin"}), ("shop", {"owner": "user"})):
        roles = [{"kind": "User", "name": user, "clusterRole": f"platform-project-{role}"} for user, role in members.items()]
        spec = {"members": roles, "allowedClusters": [{"name": "*"}], "quotas": {"project": {"projectsecrets": "5"}},
                "access": READERS}
        bench.ok("POST", f"{API}/projects", {"metadata": {"name": name}, "spec": spec})
    place = {"cluster": "east", "namespace": "apps"}
    instance(bench, "virtualclusterinstances", "ci", {**place, "virtualCluster": "ci"}, access=READERS)
    instance(bench, "spaceinstances", "dev", place, access=READERS)
    bench.secret("db", {"password": "hunter2", "user": "ada"}, labels={"tier": "data"}, annotations={"note": "kept"})
    secret = f"{API}/namespaces/platform/sharedsecrets/db"
    bench.ok("PATCH", secret, {"spec": {"owner": {"user": "owner"}, "access": READERS}})
    made = {"metadata": {"name": "tls"}, "spec": {"data": {"cert": "Y2VydA=="}, "access": READERS}}
    bench.ok("POST", f"{API}/namespaces/p-web/projectsecrets", made)
    bench.key("ci", {"user": "owner", "ttl": 86_400, "scope": {"projects": [{"project": "shop"}]}})
    return keys


def instance(bench, plural, name, place, project="web", **spec):
    """A space or a virtual cluster in a project."""
    body = {"metadata": {"name": name}, "spec": {"clusterRef": place, **spec}}
    return bench.ok("POST", f"{API}/namespaces/p-{project}/{plural}", body)

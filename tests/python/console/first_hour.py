"""The first hour of an administrator: one form makes a user with a team, a role and a login link; a role that is taken away; and a last
administrator, who cannot be lost by a click. Then a cluster, and a pipeline with a key for one secret."""

import re
import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import expect

from harness import API, run

RBAC = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
GRANT = f"{RBAC}/clusterrolebindings/grant:platform-viewer:user:ada"


def heading(bench, page, path, name):
    bench.go(page, path)
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def press(place, name):
    place.get_by_role("button", name=name, exact=True).click()


def grant(page, role, who):
    """Fills in the dialog, which the server then checks."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="Role").select_option(f"ClusterRole//{role}")
    dialog.get_by_role("combobox", name="User or team").fill(who)
    return dialog


def new_user(page, name, **fields):
    """Fills in the form of a new user."""
    press(page, "New user")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").first.fill(name)
    for label, value in fields.items():
        field = dialog.get_by_role("combobox", name=label) if label in ("Teams", "Roles") else dialog.get_by_label(label)
        field.fill(value)
        if label in ("Teams", "Roles"):
            field.press("Enter")
            expect(dialog.get_by_role("button", name=f"Remove {value}")).to_be_visible()
    return dialog


def users_of(bench, team):
    return bench.ok("GET", f"{API}/teams/{team}")["spec"].get("users", [])


def one_form_makes_a_user(bench):
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "shop"}, "spec": {}})
    page = bench.logged_in()
    heading(bench, page, "/users", "Users")
    dialog = new_user(page, "grace", Title="Grace", Teams="shop", Roles="platform-viewer", **{"E-mail": "grace@example.com"})
    dialog.get_by_role("checkbox", name="Make a login link").check()
    dialog.get_by_role("combobox", name="The link is valid for").select_option("8 hours")
    command = "postern create user grace --display-name Grace --email grace@example.com --team shop --role platform-viewer --invite --valid-for 8h"
    expect(dialog.get_by_text(command)).to_be_visible()
    press(dialog, "Create")
    done = page.get_by_role("dialog", name="Login link for grace")
    expect(done.get_by_text("The link is valid for 8 hours, and for one login as this user.")).to_be_visible()
    expect(done.get_by_text("not done")).to_have_count(0)
    link = done.locator("[data-secret]").inner_text()
    press(done, "Done")
    expect(page.get_by_role("heading", level=1)).to_contain_text("grace")
    made = bench.ok("GET", f"{API}/users/grace")["spec"]
    assert (made["displayName"], made["email"]) == ("Grace", "grace@example.com"), made
    assert users_of(bench, "shop") == ["grace"]
    subjects = bench.ok("GET", GRANT.replace("user:ada", "user:grace"))["subjects"]
    assert [one["name"] for one in subjects] == ["platform:user:grace"], subjects
    invited = bench.new_context().new_page()
    bench.use_link(invited, link)
    heading(bench, invited, "/teams/shop", "shop")


def a_step_that_fails_is_told_and_tried_again(bench):
    page = bench.logged_in()
    heading(bench, page, "/users", "Users")
    refusal = {"kind": "Status", "status": "Failure", "code": 503, "message": "the server is busy"}
    away = lambda route: route.fulfill(status=503, json=refusal) if route.request.method == "PATCH" else route.continue_()
    page.route("**/teams/shop", away)
    dialog = new_user(page, "carl", Teams="shop", Roles="platform-viewer")
    dialog.get_by_role("checkbox", name="Make a login link").check()
    press(dialog, "Create")
    done = page.get_by_role("dialog", name="Login link for carl")
    expect(done.get_by_text("The user carl was created, but not everything was done:")).to_be_visible()
    expect(done.get_by_role("listitem").filter(has_text="in the team shop")).to_contain_text("not done in the team shop: the server is busy")
    expect(done.get_by_role("listitem").filter(has_text="has the role platform-viewer")).not_to_contain_text("not done")
    link = done.locator("[data-secret]").inner_text()
    assert users_of(bench, "shop") == ["grace"], "nothing else has put the user into the team"
    page.unroute("**/teams/shop", away)
    press(done, "Try the rest again")
    expect(done.get_by_text("The user carl was created.")).to_be_visible()
    expect(done.get_by_text("not done")).to_have_count(0)
    assert users_of(bench, "shop") == ["grace", "carl"]
    assert done.locator("[data-secret]").inner_text() == link, "there is one link"
    press(done, "Done")
    expect(page.get_by_role("heading", level=1)).to_contain_text("carl")

    # What cannot be given is told before anything is created.
    rules = [{"apiGroups": ["management.platform.sh"], "resources": ["users"], "verbs": ["get", "list", "create"]},
             {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "create"]}]
    bench.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "makers-of-users"}, "rules": rules})
    bind(bench, "makers-of-users", "user:dana")
    page = bench.logged_in(bench.user("dana"), bench.new_context())
    heading(bench, page, "/users", "Users")
    dialog = new_user(page, "frank", Roles="platform-admin")
    press(dialog, "Create")
    expect(dialog.get_by_text("Nothing was created:")).to_be_visible()
    expect(dialog.get_by_role("alert")).to_contain_text("You can grant only what you hold yourself")
    press(dialog, "Remove platform-admin")
    dialog.get_by_role("checkbox", name="Make a login link").check()
    expect(dialog.get_by_role("button", name="Create", exact=True)).to_have_attribute("aria-disabled", "true")
    assert bench.call("GET", f"{API}/users/frank").status == 404


def a_user_gets_a_role_and_logs_in(bench):
    page = bench.logged_in()
    heading(bench, page, "/users", "Users")
    press(page, "New user")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").first.fill("ada")
    dialog.get_by_label("Title").fill("Ada")
    expect(dialog.get_by_text("postern create user ada --display-name Ada")).to_be_visible()
    press(dialog, "Create")
    expect(page.get_by_role("heading", level=1)).to_contain_text("ada")

    press(page, "Grant a role")
    dialog = grant(page, "platform-viewer", "user/ada")
    expect(dialog.get_by_text("user/ada gets, everywhere:")).to_be_visible()
    expect(dialog.get_by_text("Read on projects, clusters, users and teams")).to_be_visible()
    expect(dialog.get_by_text("postern grant platform-viewer --user ada")).to_be_visible()
    expect(dialog.get_by_text("The server accepts this.")).to_be_visible()
    assert bench.call("GET", GRANT).status == 404, "the check of the server writes nothing"
    press(dialog, "Grant a role")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("link", name="platform-viewer")).to_be_visible()
    subjects = bench.ok("GET", GRANT)["subjects"]
    assert [one["name"] for one in subjects] == ["platform:user:ada"], subjects

    press(page, "Invite")
    dialog = page.get_by_role("dialog")
    link = dialog.locator("[data-secret]").inner_text()
    press(dialog, "Done")
    invited = bench.new_context().new_page()
    bench.use_link(invited, link)
    heading(bench, invited, "/roles?q=platform-viewer", "Roles")
    expect(invited.get_by_role("link", name="user/ada")).to_be_visible()


def nobody_grants_what_they_do_not_hold(bench):
    # May create bindings, and holds less than the role has.
    rule = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "create"]}
    bench.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "binders"}, "rules": [rule]})
    bind(bench, "binders", "user:bob")
    page = bench.logged_in(bench.user("bob"), bench.new_context())
    heading(bench, page, "/roles", "Roles")
    press(page, "Grant a role")
    dialog = grant(page, "platform-admin", "user/bob")
    refused = dialog.get_by_role("alert")
    expect(refused).to_contain_text("You can grant only what you hold yourself")
    expect(refused).to_contain_text("Everything on every kind of every API group")
    expect(dialog.get_by_role("button", name="Grant a role", exact=True)).to_be_disabled()


def bind(bench, role, group):
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"platform:{group}"}
    name = f"grant:{role}:{group}"
    bench.ok("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


def a_role_is_taken_away(bench):
    page = bench.logged_in()
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "red"}, "spec": {"users": ["ada"]}})
    bind(bench, "platform-viewer", "team:red")
    heading(bench, page, "/roles?q=platform-viewer", "Roles")
    press(page, "Take away platform-viewer: user/ada, everywhere")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("user/ada loses at once, everywhere:")).to_be_visible()
    expect(dialog.get_by_text("user/ada keeps it everywhere, by team/red")).to_be_visible()
    expect(dialog.get_by_text("postern revoke platform-viewer --user ada")).to_be_visible()
    assert bench.call("GET", GRANT).status == 200
    press(dialog, "Take away")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("link", name="user/ada")).to_have_count(0)
    assert bench.call("GET", GRANT).status == 404

    # The page of the user says by what the role is left, and what it reaches.
    heading(bench, page, "/users/ada", "ada")
    expect(page.get_by_text("by the team red")).to_be_visible()
    heading(bench, page, "/users/ada?tab=reach", "ada")
    page.get_by_role("combobox", name="Objects").select_option("projects")
    press(page, "Find out")
    expect(page.get_by_text("There are no such objects")).to_be_visible()
    bench.ok("POST", f"{API}/projects", {"metadata": {"name": "web"}, "spec": {}})
    press(page, "Find out")
    expect(page.get_by_role("row").filter(has_text="web")).to_contain_text("role platform-viewer, for team red")

    # A role in a project is that of a member.
    heading(bench, page, "/users/ada", "ada")
    press(page, "Grant a role")
    page.get_by_role("radio", name="In a project").check()
    page.get_by_role("combobox", name="Project").select_option("web")
    dialog = grant(page, "platform-project-viewer", "user/ada")
    expect(dialog.get_by_text("postern grant viewer --user ada --project web")).to_be_visible()
    press(dialog, "Grant a role")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("link", name="web", exact=True)).to_be_visible()
    members = lambda: [one["name"] for one in bench.ok("GET", f"{API}/projects/web")["spec"].get("members", [])]
    assert members() == ["ada"], members()
    press(page, "Take away platform-project-viewer: user/ada, in the project web")
    expect(dialog.get_by_text("postern revoke viewer --user ada --project web")).to_be_visible()
    press(dialog, "Take away")
    expect(dialog).to_have_count(0)
    assert members() == [], members()


def a_cluster_is_connected(bench):
    page = bench.logged_in()
    heading(bench, page, "/clusters", "Clusters")
    press(page, "Connect a cluster")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").first.fill("east")
    expect(dialog.get_by_text("postern create cluster east")).to_be_visible()
    press(dialog, "Create")
    line = page.locator("[data-secret]")
    expect(line).to_contain_text("pst_")
    text = line.inner_text()
    assert text.startswith("helm upgrade --install postern-agent deploy/charts/postern-agent "), text.split("pst_")[0]
    expect(page.get_by_text("Waiting for the agent.")).to_be_visible()
    # The chart gives these values to the agent.
    [[url]] = [re.findall(r"server\.url=([^ ,]+)", text)]
    [[key]] = [re.findall(r"key\.value=(\S+)", text)]
    with tempfile.TemporaryDirectory() as directory:
        agent = start_agent(bench, Path(directory), url, key)
        try:
            expect(page.get_by_text("east is ready.")).to_be_visible()
        finally:
            agent.terminate()
            agent.wait()
    press(page, "Open the cluster")
    expect(page.get_by_role("heading", level=1)).to_contain_text("east")
    assert key not in page.content()


def start_agent(bench, directory, url, key):
    (directory / "ca.pem").write_text(bench.config["authority"])
    (directory / "key").write_text(key)
    words = ["agent", "--server", url, "--ca-file", directory / "ca.pem", "--cluster", "east", "--key-file", directory / "key",
             "--upstream", bench.config["kubeconfig"], "--state-dir", directory / "state", "--allow-local-upstreams", "--drain-timeout=1s"]
    return subprocess.Popen([bench.config["postern"], *words], env={}, stderr=subprocess.DEVNULL)


def a_pending_cluster_gets_a_new_key(bench):
    bench.ok("POST", f"{API}/clusters", {"metadata": {"name": "west"}, "spec": {}})
    page = bench.logged_in()
    heading(bench, page, "/clusters/west", "west")
    line = page.locator("[data-secret]")
    expect(line).to_contain_text("key.value=KEY")
    keys = []
    for _ in range(2):
        press(page, "New key")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("agent-west exists, its value stops at once")).to_be_visible()
        press(dialog, "New key")
        expect(dialog).to_have_count(0)
        expect(line).to_contain_text("pst_")
        keys.append(re.search(r"key\.value=(\S+)", line.inner_text()).group(1))
    statuses = [bench.call("GET", f"{API}/clusters/west", key=key).status for key in keys]
    assert statuses == [401, 200], statuses


def a_pipeline_reads_one_secret(bench):
    bench.secret("db", {"password": "hunter2"}, namespace="default")
    bench.secret("other", {"password": "secret"}, namespace="default")
    page = bench.logged_in()
    heading(bench, page, "/keys", "Access keys")
    press(page, "New key")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").first.fill("ci")
    expect(dialog.get_by_text("postern create accesskey ci --user admin --ttl 30d")).to_be_visible()
    dialog.get_by_role("radio", name="Only what").check()
    press(dialog, "Remove: Project")
    dialog.get_by_role("combobox", name="Add to the scope").select_option("secret")
    entry = dialog.locator(".entry").first
    entry.get_by_label("Namespace", exact=True).fill("default")
    entry.get_by_label("Name", exact=True).fill("db")
    expect(dialog.get_by_text("Always within the permissions")).to_be_visible()
    press(dialog, "Create")
    key = page.locator("[data-secret]").inner_text()
    press(page.get_by_role("dialog"), "Done")
    with tempfile.TemporaryDirectory() as directory:
        authority = Path(directory) / "ca.pem"
        authority.write_text(bench.config["authority"])
        environment = {"POSTERN_ACCESS_KEY": key, "HOME": directory}
        words = ["--server", bench.origin, "--ca-file", authority]
        read = lambda name: subprocess.run([bench.config["postern"], "get", "secret", name, "-n", "default", *words], env=environment, capture_output=True)
        assert read("db.password").stdout == b"hunter2", read("db.password")
        assert read("other.password").returncode != 0


def the_last_administrator_cannot_be_lost_by_a_click(bench):
    key = bench.user("eve")
    bind(bench, "platform-admin", "user:eve")
    page = bench.logged_in(key, bench.new_context())
    bench.ok("DELETE", f"{API}/users/admin", key=key)
    bench.config["key"] = key
    heading(bench, page, "/roles?q=platform-admin", "Roles")
    press(page, "Take away platform-admin: user/eve, everywhere")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("This is the last way in")).to_be_visible()
    expect(dialog.get_by_text("You have every permission by this role alone.")).to_be_visible()
    confirm = dialog.get_by_role("button", name="Take away", exact=True)
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type platform-admin to confirm").fill("platform-admin")
    expect(confirm).to_be_disabled()
    press(dialog, "Cancel")

    # With another administrator, the name is enough.
    bind(bench, "platform-admin", "user:bob")
    heading(bench, page, "/roles?q=admin", "Roles")
    page.reload()
    press(page, "Take away platform-admin: user/eve, everywhere")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type platform-admin to confirm").fill("platform-admin")
    expect(dialog.get_by_text("This is the last way in")).to_have_count(0)
    press(dialog, "Take away")
    expect(dialog).to_have_count(0)
    assert bench.call("GET", f"{RBAC}/clusterrolebindings", key=key).status == 403


run(one_form_makes_a_user, a_step_that_fails_is_told_and_tried_again, a_user_gets_a_role_and_logs_in,
    nobody_grants_what_they_do_not_hold, a_role_is_taken_away, a_cluster_is_connected, a_pending_cluster_gets_a_new_key, a_pipeline_reads_one_secret, the_last_administrator_cannot_be_lost_by_a_click)

"""Every page and dialog for screen readers, for narrow and magnified windows, and by keyboard alone.

In the short form, axe checks all rules once, and then only those that depend on what changed: contrast in the dark theme,
sizes and scrolling in narrow windows. In the full form, it checks all rules in each of the four.
"""

import os
import re

from playwright.sync_api import expect

from estate import fill
from harness import API, run

IS_FULL = os.environ.get("POSTERN_TEST_FORM") == "full"

USUAL = {"width": 1280, "height": 800}
# A window of 1280 by 800 at 200 %, and the narrowest one that needs no scrolling in two directions.
NARROW = [{"width": 640, "height": 400}, {"width": 320, "height": 640}]

# The readers of a secret, in every form that a row has.
READERS = {
    "since": "2026-11-30T12:00:00Z", "truncated": True,
    "readers": [
        {"via": "Request", "user": "owner", "displayName": "Owner", "accessKey": "key-x7", "accessKeyDisplayName": "laptop",
         "firstTime": "2026-11-30T12:10:00Z", "lastTime": "2026-11-30T12:20:00Z", "count": 1200},
        {"via": "Sync", "object": "p-web/db", "user": "owner", "firstTime": "2026-11-30T12:11:00Z", "lastTime": "2026-11-30T12:11:00Z", "count": 1},
        {"via": "Agent", "object": "east", "firstTime": "2026-11-30T12:12:00Z", "lastTime": "2026-11-30T12:12:00Z", "count": 1},
        {"via": "Request", "team": "blue", "accessKey": "ci", "firstTime": "2026-11-30T12:13:00Z", "lastTime": "2026-11-30T12:13:00Z", "count": 2},
    ],
}

COLOURS = ["color-contrast", "link-in-text-block"]
LAYOUT = ["target-size", "scrollable-region-focusable", "color-contrast"]


class Audit:
    """Checks states of one page in every form of the window."""

    def __init__(self, bench, page):
        self.bench, self.page = bench, page
        self.found, self.states = [], 0

    def state(self, what):
        """Checks what the page shows now."""
        self.states += 1
        self._settle()
        self._axe(what, None)
        self.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        self._axe(f"{what}, dark", COLOURS)
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        for size in NARROW:
            self.page.set_viewport_size(size)
            self._settle()
            where = f"{what}, {size['width']} px"
            wide = self.page.evaluate(
                """() => { scrollTo(1, 0); const moved = scrollX; scrollTo(0, 0);
                     return [moved, document.documentElement.scrollWidth - innerWidth,
                       ...[...document.querySelectorAll('dialog[open] .content')].map((one) => one.scrollWidth - one.clientWidth)]; }""")
            if any(each > 0 for each in wide):
                self.found.append(f"{where}: scrolls sideways by {wide}")
            # The narrowest window has every narrow layout.
            if IS_FULL or size is NARROW[-1]:
                self._axe(where, LAYOUT)
        self.page.set_viewport_size(USUAL)

    def open(self, path, what=None, heading=None):
        """Opens a page, waits for what it loads, and checks it."""
        self.bench.go(self.page, path)
        if heading:
            expect(self.page.get_by_role("heading", level=1)).to_contain_text(heading)
        self.state(what or path)

    def dialog(self, what, open_it, fill_it=None):
        """Opens a dialog, checks it, and closes it."""
        open_it()
        dialog = self.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        if fill_it:
            fill_it(dialog)
        self.state(what)
        close = dialog.get_by_role("button", name=re.compile("^(Cancel|Done)$")).first
        close.click() if close.is_visible() else self.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)

    def done(self):
        assert not self.found, "\n".join(self.found)
        print(f"axe: {self.states} pages and dialogs in 4 windows")

    def _settle(self):
        """Waits until the page has loaded what it shows, and moved it."""
        self.page.wait_for_function(
            """() => !/Loading…|Checking the permission/.test(document.body.innerText)
                 && document.getAnimations().every((one) => one.playState !== 'running')
                 && !document.querySelector('[title="Checking the permission"]')""")

    def _axe(self, what, rules):
        options = {"resultTypes": ["violations"]}
        if rules and not IS_FULL:
            options["runOnly"] = {"type": "rule", "values": rules}
        if not self.page.evaluate("!!window.axe"):
            self.page.evaluate(self.bench.axe_source + ";0")
        result = self.page.evaluate("(options) => axe.run(document, options)", options)
        for one in result["violations"]:
            self.found += [f"{what}: {one['id']}: {node['html'][:200]}" for node in one["nodes"]]


def begin(bench, page):
    page.set_viewport_size(USUAL)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    return Audit(bench, page)


def lists_and_pages(bench):
    fill(bench)
    page = bench.context.new_page()
    audit = begin(bench, page)
    page.goto(bench.origin + "/ui/")
    bench.until_login(page)
    audit.state("login")
    page.locator("input[type=password]").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    audit.state("login, rejected")
    page.close()

    page = bench.logged_in()
    audit = resumed(audit, page)
    audit.open("/", "overview", "Hello")
    for path, heading in (("/secrets", "Shared secrets"), ("/projectsecrets", "Project secrets"),
                          ("/keys?of=all", "Access keys"), ("/projects", "Projects"),
                          ("/virtualclusters", "Virtual clusters"), ("/spaces", "Spaces"), ("/clusters", "Clusters"),
                          ("/users", "Users"), ("/teams", "Teams")):
        bench.go(page, path)
        expect(page.locator("[data-row='0']")).to_be_visible()
        audit.open(path, heading=heading)
    audit.open("/secrets?q=no-such-thing", "no match")
    audit.open("/secrets?ns=p-shop", "an empty list")
    audit.open("/no-such-page", "a page that does not exist")
    audit.open("/secrets/platform/no-such-secret", "an object that does not exist")
    audit.open("/sessions", heading="Sessions")
    audit.open("/why?who=user%2Fnobody&verb=delete&kind=sharedsecrets&place=platform&name=db", "why can't I", "Why")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("section").get_by_text("Denied")).to_be_visible()
    audit.state("why can't I, answered")
    audit.open("/endpoint-tokens", heading="Endpoint tokens")
    page.get_by_role("radio", name="Only what").check()
    audit.state("endpoint tokens, scoped")
    page.get_by_role("radio", name="Everything").check()
    page.get_by_role("button", name="Issue").click()
    expect(page.locator("[data-secret]")).to_be_visible()
    audit.state("an endpoint token")
    audit.done()


def resumed(audit, page):
    """The same audit on another page."""
    page.set_viewport_size(USUAL)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    audit.page = page
    return audit


def objects_and_dialogs(bench):
    page = bench.logged_in()
    audit = begin(bench, page)
    button = lambda name, exact=True: page.get_by_role("button", name=name, exact=exact).first.click()

    page.route("**/sharedsecrets/db/readers", lambda route: route.fulfill(json=READERS))
    audit.open("/secrets/platform/db", heading="db")
    expect(page.get_by_role("table").get_by_text("laptop (key-x7)")).to_be_visible()
    page.get_by_role("button", name="Reveal").first.click()
    expect(page.locator("[data-secret]")).to_be_visible()
    audit.state("a revealed value")
    page.keyboard.press("Escape")
    audit.dialog("set entry", lambda: button("Set"))
    audit.dialog("add entry", lambda: button("Add entry"))
    audit.dialog("remove entry", lambda: button("Remove"))
    audit.dialog("delete", lambda: button("Delete"))
    audit.open("/secrets/platform/db?tab=access", heading="db")
    expect(page.get_by_text("owner", exact=True).first).to_be_visible()

    def shared(dialog):
        dialog.get_by_role("combobox", name="Permission of reader").select_option("custom")
        dialog.get_by_role("combobox", name="With").fill("nobody")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("status")).to_contain_text("nobody can read")
        expect(dialog.get_by_role("status")).to_contain_text("reader can no longer")

    audit.dialog("share", lambda: button("Share"), shared)
    audit.open("/secrets/platform/db?tab=yaml", heading="db")
    audit.open("/secrets/platform/db?tab=events", heading="db")
    audit.open("/projectsecrets/p-web/tls", heading="tls")
    audit.open("/keys/ci", heading="ci")
    audit.dialog("rotate", lambda: button("Rotate"))
    audit.dialog("edit the scope", lambda: button("Edit"))
    audit.open("/projects/web", heading="web")
    page.get_by_role("button", name="Edit").nth(0).click()
    page.get_by_role("button", name="Edit").nth(0).click()
    audit.state("the members and quotas editor")
    audit.dialog("delete by name", lambda: button("Delete"))
    audit.open("/virtualclusters/p-web/ci", heading="ci")

    def checked(dialog):
        dialog.get_by_role("combobox").select_option("shop")
        dialog.get_by_role("button", name="Check the move").click()
        expect(dialog.get_by_role("button", name="Move to shop")).to_be_enabled()

    audit.dialog("migration wizard", lambda: button("Move to a project"), checked)
    audit.open("/spaces/p-web/dev", heading="dev")
    audit.open("/clusters/east", heading="east")
    audit.dialog("a new key for an agent", lambda: button("New key"))
    audit.open("/users/owner", heading="owner")
    counted = lambda dialog: expect(dialog.get_by_text("stop at once")).to_be_visible()
    audit.dialog("disable by name", lambda: button("Disable"), counted)
    audit.open("/users/admin", heading="admin")
    last = lambda dialog: expect(dialog.get_by_text("This is the last way in")).to_be_visible()
    audit.dialog("disable the last administrator", lambda: button("Disable"), last)
    audit.open("/teams/blue", heading="blue")
    audit.open("/users/reader?tab=reach", heading="reader")
    button("Find out")
    expect(page.get_by_text("of 1 objects")).to_be_visible()
    audit.state("what a user reaches")
    roles(bench, page, audit, button)
    audit.done()


def roles(bench, page, audit, button):
    """The page of roles with its two dialogs."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "platform-viewer"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "platform:team:blue"}
    bench.ok("POST", "/kubernetes/management/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
             {"metadata": {"name": "blue"}, "roleRef": reference, "subjects": [subject]})
    bench.go(page, "/roles")
    expect(page.get_by_role("heading", name="platform-viewer")).to_be_visible()
    audit.open("/roles", heading="Roles")

    def chosen(dialog):
        dialog.get_by_role("combobox", name="Role").select_option("ClusterRole//platform-viewer")
        dialog.get_by_role("combobox", name="User or team").fill("user/nobody")
        expect(dialog.get_by_text("The server accepts this")).to_be_visible()

    audit.dialog("grant a role", lambda: button("Grant a role"), chosen)
    kept = lambda dialog: expect(dialog.get_by_text("The team has 1 user")).to_be_visible()
    audit.dialog("take a role away", lambda: page.get_by_role("button", name="Take away platform-viewer: team/blue").click(), kept)


def forms_and_overlays(bench):
    page = bench.logged_in()
    audit = begin(bench, page)
    new = lambda: page.keyboard.press("n")

    def to(path, heading):
        bench.go(page, path)
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        expect(page.locator("[data-create][aria-disabled=false]")).to_be_visible()

    to("/secrets", "Shared secrets")
    audit.dialog("new secret", new)
    page.keyboard.press("j")
    expect(page.locator("[data-row='0'] a")).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected").first).to_be_visible()
    audit.dialog("delete several", lambda: page.get_by_role("button", name="Delete").click())
    to("/keys", "Access keys")

    def scoped(dialog):
        dialog.get_by_role("radio", name="Only what").check()
        add = dialog.get_by_role("combobox", name="Add to the scope")
        for one in ("virtualCluster", "secret", "rule"):
            add.select_option(one)
        for name, value in (("Project", "web"), ("Namespace", "platform"), ("Name", "db")):
            for field in dialog.get_by_role("combobox", name=name, exact=True).all():
                if field.evaluate("one => one.tagName") == "INPUT":
                    field.fill(value)
        for field in dialog.locator("input[required]").all():
            if not field.input_value():
                field.fill("db")
        expect(dialog.get_by_text("Always within the permissions")).to_be_visible()

    audit.dialog("new key with a scope", new, scoped)
    to("/projects", "Projects")
    audit.dialog("new project", new)
    to("/users", "Users")

    def everything(dialog):
        dialog.get_by_label("Name").first.fill("grace")
        for field, value in (("Teams", "blue"), ("Roles", "platform-viewer")):
            dialog.get_by_role("combobox", name=field).fill(value)
            page.keyboard.press("Enter")
        dialog.get_by_role("checkbox", name="Make a login link").check()
        expect(dialog.get_by_text("postern create user grace --team blue --role platform-viewer --invite")).to_be_visible()

    audit.dialog("new user", new, everything)
    to("/clusters", "Clusters")
    audit.dialog("connect a cluster", new)
    new()
    page.get_by_role("dialog").get_by_label("Name", exact=False).first.fill("west")
    page.keyboard.press("Enter")
    expect(page.locator("[data-secret]")).to_contain_text("pst_")
    audit.state("the line that connects a cluster")
    page.get_by_role("button", name="Open the cluster").click()
    audit.dialog("help", lambda: page.keyboard.press("?"))
    audit.dialog("palette", lambda: page.keyboard.press("Control+k"), lambda dialog: dialog.get_by_role("combobox").fill("s"))
    page.get_by_role("button", name="Account").click()
    audit.state("account menu")
    page.keyboard.press("Escape")

    conflict(bench, page)
    audit.state("a conflict")
    page.get_by_role("radio", name="Yours").check()
    page.get_by_role("button", name="Merge", exact=True).click()
    expect(page.get_by_role("group", name="Changes")).to_be_visible()
    audit.state("the changes before saving")
    # A permission that is missing.
    page.close()
    page = bench.logged_in(bench.user("outsider"), bench.new_context())
    audit = resumed(audit, page)
    audit.open("/", "the overview of a new user", "Hello")
    page.get_by_text("All kinds").click()
    audit.state("all kinds")
    bench.go(page, "/projects")
    greyed = page.get_by_role("button", name="New project")
    expect(greyed).to_have_attribute("aria-describedby", re.compile("."))
    told = lambda dialog: expect(dialog.get_by_text("No role of outsider allows this. Ask an administrator")).to_be_visible()
    audit.dialog("why a button is greyed", lambda: greyed.click(force=True), told)
    refused(bench, page, audit)
    page.context.close()
    audit.done()


def refused(bench, page, audit):
    """What a caller may not do is told in words. The text of the API is below Details, and the same question is a link away."""
    raw = page.get_by_text("is forbidden")
    bench.go(page, "/projectsecrets/p-web/tls")
    expect(page.get_by_text("You may not read the project secret tls in the namespace p-web. Ask its owner")).to_be_visible()
    expect(page.get_by_role("navigation", name="Views of the object")).to_have_count(0)
    expect(raw).to_be_hidden()
    audit.state("an object that may not be read")
    page.get_by_text("Details").click()
    expect(raw).to_be_visible()
    audit.state("an object that may not be read, with details")
    page.get_by_role("link", name="Why can’t I?").last.click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("tls")
    mine = page.evaluate("""() => fetch('/kubernetes/management/apis/management.platform.sh/v1/namespaces/default/sharedsecrets',
        {method: 'POST', headers: {'X-Postern-Console': '1', 'Content-Type': 'application/json'},
         body: JSON.stringify({metadata: {name: 'own'}, spec: {}})}).then((answer) => answer.status)""")
    assert mine == 201, mine
    bench.go(page, "/secrets/default/own?tab=events")
    expect(page.get_by_text("You may not list events in the namespace default. Ask an administrator")).to_be_visible()
    expect(raw).to_be_hidden()
    audit.state("events that may not be listed")
    bench.ok("PATCH", f"{API}/namespaces/platform/sharedsecrets/db", {"spec": {"access": [{"name": "read", "verbs": ["get"], "users": ["outsider"]}]}})
    bench.go(page, "/secrets/platform/db?tab=access")
    expect(page.get_by_text("You may not see who has access to an object that you may not change.")).to_be_visible()
    expect(raw).to_be_hidden()
    audit.state("who can, of an object of another user")


def conflict(bench, page):
    """Brings the YAML editor of a team to a conflict with another writer of the same field."""
    bench.go(page, "/teams/blue?tab=yaml")
    expect(page.get_by_text("displayName: Blue")).to_be_visible()
    page.get_by_role("button", name="Edit", exact=True).click()
    editor = page.get_by_role("textbox", name="YAML")
    expect(editor).to_have_value(re.compile("displayName: Blue"))
    editor.fill(editor.input_value().replace("displayName: Blue", "displayName: ours"))
    bench.ok("PATCH", f"{API}/teams/blue", {"spec": {"displayName": "other"}})
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_role("radio", name="Yours")).to_be_visible()


def planted_faults_are_found(bench):
    page = bench.logged_in()
    audit = begin(bench, page)
    page.evaluate(
        """() => { const box = document.createElement('div');
             const make = (name, style) => { const one = document.createElement(name); Object.assign(one.style, style); box.append(one); return one; };
             make('button', {});
             make('p', { color: '#777', background: '#888' }).textContent = 'planted';
             make('p', { width: '700px' }).textContent = 'wide';
             document.querySelector('main').append(box); }""")
    audit.state("planted")
    for fault in ("planted: button-name", "planted: color-contrast", "planted, dark: color-contrast",
                  "planted, 640 px: scrolls", "planted, 320 px: scrolls", "planted, 320 px: color-contrast"):
        assert any(one.startswith(fault) for one in audit.found), (fault, audit.found)


run(planted_faults_are_found, lists_and_pages, objects_and_dialogs, forms_and_overlays)

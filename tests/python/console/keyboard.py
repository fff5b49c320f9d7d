"""The main actions by keyboard alone. The checks have no other input, and the focus must come to each control in turn."""

import re

from playwright.sync_api import expect

from harness import API, run

# More stops than any page has between two controls.
STOPS = 90

FOCUSED = """
() => {
  const one = document.activeElement;
  const label = one.labels?.length ? [...one.labels].map((each) => each.innerText).join(' ') : '';
  return (one.getAttribute('aria-label') || label || one.innerText || one.placeholder || '').trim().replace(/\\s+/g, ' ');
}
"""

# Whether a sighted user sees where the focus is.
OUTLINED = """
() => {
  const seen = (one) => { const style = getComputedStyle(one); return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1; };
  const one = document.activeElement;
  return one === document.body || seen(one) || [one.nextElementSibling, one.closest('label')].some((each) => each && seen(each))
    || one.matches('[role=combobox]');
}
"""


class Keyboard:
    def __init__(self, page):
        self.page = page
        self.unseen = set()

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text):
        self.page.keyboard.type(text)

    def to(self, name):
        """Moves the focus with Tab to the control that begins with a name."""
        passed = []
        for _ in range(STOPS):
            self.press("Tab")
            focused = self.page.evaluate(FOCUSED)
            if not self.page.evaluate(OUTLINED):
                self.unseen.add(focused)
            if re.match(name, focused):
                return
            passed.append(focused)
        raise AssertionError(f"Tab does not come to {name}: {passed}")

    def heading(self, text):
        expect(self.page.get_by_role("heading", level=1)).to_contain_text(text)


def every_main_action_works(bench):
    bench.secret("alpha", {"password": "hunter2"})
    bench.secret("beta", {"password": "other"})
    page = bench.context.new_page()
    keyboard = Keyboard(page)
    page.goto(bench.origin + "/ui/")
    bench.until_login(page)
    log_in(bench, keyboard)
    open_and_reveal(keyboard)
    create_a_secret(bench, keyboard)
    set_an_entry(bench, keyboard)
    create_a_key(bench, keyboard)
    search_and_jump(keyboard)
    delete(bench, keyboard)
    log_out(bench, keyboard)
    assert not keyboard.unseen, f"the focus is not to be seen on {keyboard.unseen}"


def log_in(bench, keyboard):
    keyboard.to("Access key")
    keyboard.type(bench.config["key"])
    keyboard.press("Enter")
    bench.until_in(keyboard.page)
    keyboard.press("Tab")
    assert keyboard.page.evaluate(FOCUSED) == "Skip to content"
    keyboard.press("Enter")
    assert keyboard.page.evaluate("document.activeElement.id") == "content"


def open_and_reveal(keyboard):
    page = keyboard.page
    keyboard.press("g", "s")
    keyboard.heading("Shared secrets")
    expect(page.get_by_role("link", name="beta")).to_be_visible()
    keyboard.press("j")
    expect(page.get_by_role("link", name="alpha")).to_be_focused()
    keyboard.press("j")
    expect(page.get_by_role("link", name="beta")).to_be_focused()
    keyboard.press("k")
    expect(page.get_by_role("link", name="alpha")).to_be_focused()
    keyboard.press("Enter")
    keyboard.heading("alpha")
    expect(page.get_by_role("button", name="Reveal")).to_be_visible()
    keyboard.to("Reveal")
    keyboard.press("Enter")
    expect(page.get_by_text("hunter2")).to_be_visible()
    keyboard.press("Escape")
    expect(page.get_by_text("hunter2")).to_have_count(0)


def create_a_secret(bench, keyboard):
    page = keyboard.page
    keyboard.press("g", "s")
    keyboard.heading("Shared secrets")
    expect(page.locator("[data-create][aria-disabled=false]")).to_be_visible()
    keyboard.press("n")
    expect(page.get_by_role("dialog")).to_be_visible()
    # The dialog has the focus on its first field.
    keyboard.type("gamma")
    keyboard.to("Key")
    keyboard.type("token")
    keyboard.to("Value")
    keyboard.type("typed")
    keyboard.to("Create")
    keyboard.press("Enter")
    keyboard.heading("gamma")
    bench.ok("GET", f"{API}/namespaces/platform/sharedsecrets/gamma")


def set_an_entry(bench, keyboard):
    page = keyboard.page
    expect(page.get_by_role("button", name="Set", exact=True)).to_be_visible()
    keyboard.to("Set$")
    keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.type("changed")
    keyboard.to("Save")
    keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    # A dialog gives the focus back.
    assert keyboard.page.evaluate(FOCUSED) == "Set"
    assert bench.ok("GET", f"{API}/namespaces/platform/sharedsecrets/gamma")["spec"]["data"]["token"] == "Y2hhbmdlZA=="


def create_a_key(bench, keyboard):
    page = keyboard.page
    keyboard.press("g", "k")
    keyboard.heading("Access keys")
    expect(page.locator("[data-create][aria-disabled=false]")).to_be_visible()
    keyboard.press("n")
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.type("by-keyboard")
    keyboard.to("Everything")
    keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="Only what")).to_be_checked()
    keyboard.to("Project")
    keyboard.type("*")
    expect(page.get_by_text("Always within")).to_be_visible()
    keyboard.to("Create")
    keyboard.press("Enter")
    expect(page.locator("[data-secret]")).to_be_visible()
    keyboard.to("Done")
    keyboard.press("Enter")
    made = bench.ok("GET", f"{API}/ownedaccesskeys/by-keyboard")
    assert made["spec"]["scope"] == {"projects": [{"project": "*"}]}, made["spec"]


def search_and_jump(keyboard):
    page = keyboard.page
    keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.type("shared sec")
    expect(page.get_by_role("option", selected=True)).to_contain_text("Shared secrets")
    # A key that is pressed before the rows arrive counts when they arrive.
    held = []
    listed = re.compile(r"/sharedsecrets\?limit=")
    page.route(listed, lambda route: held.append(route))
    with page.expect_request(listed):
        keyboard.press("Enter")
    keyboard.heading("Shared secrets")
    keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    keyboard.type("bet")
    keyboard.press("ArrowDown")
    for one in held:
        one.continue_()
    page.unroute(listed)
    expect(page.get_by_role("link", name="beta")).to_be_focused()
    expect(page.get_by_role("link", name="alpha")).to_have_count(0)
    keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="beta")).to_be_focused()
    # Any key ends a shortcut of two keys, so a later one goes nowhere.
    keyboard.press("g", "Escape", "k")
    keyboard.heading("Shared secrets")


def delete(bench, keyboard):
    page = keyboard.page
    keyboard.press("Enter")
    keyboard.heading("beta")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    keyboard.to("Delete")
    keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    # Enter alone does not confirm: the focus begins on another control.
    assert page.evaluate(FOCUSED) != "Delete"
    keyboard.to("Delete")
    keyboard.press("Enter")
    keyboard.heading("Shared secrets")
    assert bench.call("GET", f"{API}/namespaces/platform/sharedsecrets/beta").status == 404
    # An object with others in it is deleted by its name.
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "red"}, "spec": {}})
    bench.go(page, "/teams/red")
    keyboard.heading("red")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    keyboard.to("Delete")
    keyboard.press("Enter")
    keyboard.type("red")
    # The dialog first counts what stops.
    expect(page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True)).to_be_enabled()
    keyboard.press("Enter")
    keyboard.heading("Teams")
    assert bench.call("GET", f"{API}/teams/red").status == 404


def log_out(bench, keyboard):
    keyboard.to("Account")
    keyboard.press("Enter")
    keyboard.to("Log out")
    keyboard.press("Enter")
    bench.until_login(keyboard.page)


run(every_main_action_works)

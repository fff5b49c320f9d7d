"""A login link for another user, up to the first page of that user."""

from playwright.sync_api import expect

from harness import API, run


def an_invited_user_begins_in_another_browser(bench):
    bench.ok("POST", f"{API}/users", {"metadata": {"name": "carl"}, "spec": {"displayName": "Carl C"}})
    page = bench.logged_in()
    bench.go(page, "/users/carl")
    page.get_by_role("button", name="Invite", exact=True).click()
    dialog = page.get_by_role("dialog")
    link = dialog.locator("[data-secret]").inner_text()
    assert link.startswith(bench.origin + "/ui/login#code="), link.split("#")[0]
    dialog.get_by_role("button", name="Done").click()
    expect(page.locator("[data-secret]")).to_have_count(0)
    expect(page.get_by_text("Invitation, valid until")).to_have_count(1)

    other = bench.new_context()
    first = other.new_page()
    bench.use_link(first, link)
    expect(first.get_by_role("heading", level=1)).to_contain_text("Carl C")
    # The link is spent.
    second = bench.new_context().new_page()
    second.goto(link)
    expect(second.get_by_role("button", name="Log in with the link")).to_have_count(0)


def the_actions_fit_the_user(bench):
    bench.ok("POST", f"{API}/users", {"metadata": {"name": "dana"}, "spec": {"displayName": "Dana D"}})
    page = bench.logged_in()
    bench.go(page, "/users/dana")
    title, button = page.get_by_text("Dana D", exact=True), page.get_by_role("button", name="Invite", exact=True)
    top = lambda one: one.bounding_box()["y"]
    page.set_viewport_size({"width": 390, "height": 900})
    expect(button).to_be_visible()
    assert top(page.get_by_role("heading", level=1)) < top(title) < top(button)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert top(title) > top(button), "there is room for the actions beside the name"
    # An invitation that waits is on the page, counts as what stops, and can be withdrawn.
    button.click()
    page.get_by_role("dialog").get_by_role("button", name="Done").click()
    waiting = page.get_by_text("Invitation, valid until")
    expect(waiting).to_have_count(1)
    page.get_by_role("button", name="Disable", exact=True).click()
    expect(page.get_by_text("0 access keys, 0 sessions and 1 invitation stop at once.")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Withdraw session-").click()
    expect(waiting).to_have_count(0)
    keys = bench.ok("GET", f"{API}/users/dana/accesskeys")["items"]
    assert keys == [], keys
    # A disabled user cannot use a link, so there is none.
    bench.ok("PATCH", f"{API}/users/dana", {"spec": {"disabled": True}})
    expect(button).to_have_attribute("title", "A disabled user cannot log in. Enable the user first.")
    expect(button).to_have_attribute("aria-disabled", "true")
    # A role has a short button, which names it for those who do not see where it is.
    bench.go(page, "/roles")
    expect(page.get_by_role("button", name="Grant platform-admin", exact=True)).to_be_visible()


run(an_invited_user_begins_in_another_browser, the_actions_fit_the_user)

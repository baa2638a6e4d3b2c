"""A web crawler: four crawlers share a queue of pages, and fetch at most two at once from a site.

The example serves three sites of its own, 240 pages with links among them; some are slow, some
broken. The pages that are found must be those of the sites.

    python examples/web_crawler.py

What to look for:

* ``Frontier``          knows which pages were seen, so none is fetched twice; and when all are done
* ``Queue`` of turns    one for each site; a crawler takes a turn, fetches, and puts it back
* ``Queue`` of pages    gives each page to one crawler, and ends their loops when it is closed
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from monarch.actor import Actor, endpoint, this_host
from monarch.queues import Queue

SITES, PAGES, CRAWLERS = 3, 80, 4
AT_ONCE = 2  # fetches from one site
PATIENCE = 10.0  # seconds for one fetch


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a" and (target := dict(attributes).get("href")):
            self.found.append(target)


@dataclass
class Page:
    url: str
    status: int  # of HTTP; 0 if there was no answer
    links: list[str] = field(default_factory=list)


def fetch(url: str) -> Page:
    try:
        with urlopen(url, timeout=PATIENCE) as response:
            links = Links()
            links.feed(response.read().decode())
            return Page(url, response.status, [urljoin(url, link) for link in links.found])
    except HTTPError as error:
        return Page(url, error.code)
    except OSError:
        return Page(url, 0)


def site_of(url: str) -> str:
    return urlsplit(url).netloc


class Frontier(Actor):
    """Knows every page that was seen. A page is done when its links have been reported."""

    def __init__(self, pages: Queue[str]) -> None:
        self.pages = pages
        self.seen: set[str] = set()
        self.results: list[Page] = []

    @endpoint
    def add(self, urls: list[str]) -> None:
        for url in urls:
            if url not in self.seen:
                self.seen.add(url)
                self.pages.put(url).get()

    @endpoint
    def done(self, page: Page) -> None:
        self.add(page.links)
        self.results.append(page)
        if len(self.results) == len(self.seen):  # nothing is on its way that could have new links
            self.pages.close().get()

    @endpoint
    def crawled(self) -> list[Page]:
        return self.results


class Crawler(Actor):
    @endpoint
    def crawl(self, pages: Queue[str], turns: dict[str, Queue[int]], frontier: Frontier) -> int:
        """Fetch pages until there are no more; how many these were."""
        fetched = 0
        for url in pages:
            turn = turns[site_of(url)].get().get()  # waits while others are at this site
            page = fetch(url)
            turns[site_of(url)].put(turn).get()
            page.links = [link for link in page.links if site_of(link) in turns]
            frontier.done.call_one(page).get()
            fetched += 1
        return fetched


def status_of(number: int) -> int:
    """Every eleventh page is broken: it is an error, or the connection ends without an answer."""
    return 200 if number % 11 else 500 if number % 2 else 0


class Site(BaseHTTPRequestHandler):
    """A page of a site: every tenth is slow, those that are not broken have five links."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        number = int(self.path.lstrip("/"))
        with server.visit(number):  # over before the answer: who has it may come again at once
            time.sleep(0.2 if number % 10 == 0 else 0.005)
        status = status_of(number)
        if status == 0:
            return
        self.send_response(status)
        self.end_headers()
        if status == 200:
            targets = " ".join(f'<a href="{link}">a page</a>' for link in server.links(number))
            self.wfile.write(f"<html>{targets}</html>".encode())

    def log_message(self, *args: object) -> None:
        pass  # not a line for each page


class Server(ThreadingHTTPServer):
    """One site. It counts who is there, as the check below does not trust the crawlers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Site)
        self.root = f"http://127.0.0.1:{self.server_port}/"
        self.others: list[str] = []  # roots of other sites
        self.lock = threading.Lock()
        self.visits: list[int] = []
        self.here = self.most = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def links(self, number: int) -> list[str]:
        """Links of a page: the next one, others of this site, one of another site."""
        rng = random.Random(number)
        own = [(number + 1) % PAGES, *(rng.randrange(PAGES) for _ in range(3))]
        return [*(f"/{page}" for page in own), f"{rng.choice(self.others)}{rng.randrange(PAGES)}"]

    @contextmanager
    def visit(self, number: int) -> Iterator[None]:
        with self.lock:
            self.visits.append(number)
            self.here += 1
            self.most = max(self.most, self.here)
        try:
            yield
        finally:
            with self.lock:
                self.here -= 1


def reachable(sites: list[Server], start: str) -> dict[str, int]:
    """The status of each page that links lead to, from what the sites are made of."""
    by_root = {site.root: site for site in sites}
    statuses: dict[str, int] = {}
    unseen = [start]
    while unseen:
        url = unseen.pop()
        if url in statuses:
            continue
        root, number = urljoin(url, "/"), int(urlsplit(url).path.lstrip("/"))
        statuses[url] = status_of(number)
        if statuses[url] == 200:
            unseen += [urljoin(url, link) for link in by_root[root].links(number)]
    return statuses


def main() -> None:
    sites = [Server() for _ in range(SITES)]
    for site in sites:
        site.others = [other.root for other in sites if other is not site]
    start = f"{sites[0].root}1"

    begun = time.perf_counter()
    procs = this_host().spawn_procs({"procs": 1 + CRAWLERS})
    store = procs.slice(procs=0)
    # With less room the frontier would wait for crawlers, and these wait for the frontier.
    pages: Queue[str] = Queue(store, maxsize=SITES * PAGES, name="pages")
    turns: dict[str, Queue[int]] = {}
    for site in sites:
        site_turns: Queue[int] = Queue(store, maxsize=AT_ONCE, name=f"turns {site.server_port}")
        for number in range(AT_ONCE):
            site_turns.put(number).get()
        turns[site_of(site.root)] = site_turns
    frontier = store.spawn("frontier", Frontier, pages)
    crawlers = procs.slice(procs=slice(1, None)).spawn("crawlers", Crawler)
    frontier.add.call_one([start]).get()
    fetched = crawlers.crawl.call(pages, turns, frontier).get()
    found = frontier.crawled.call_one().get()
    seconds = time.perf_counter() - begun
    procs.stop().get()

    broken = sum(page.status != 200 for page in found)
    print(f"{len(found)} pages in {seconds:.1f} s, of which {broken} are broken")
    print(f"by crawler: {', '.join(map(str, fetched.values()))}")
    for site in sites:
        print(f"{site.root}  {len(site.visits)} fetches, at most {site.most} at once")

    assert {page.url: page.status for page in found} == reachable(sites, start), (
        "other pages were found"
    )
    assert sum(len(site.visits) for site in sites) == len(found), "a page was fetched twice"
    assert all(site.most <= AT_ONCE for site in sites), "too many were at one site"


if __name__ == "__main__":
    main()

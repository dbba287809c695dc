"""What `join` shows before anything is made, and the question whether to go on."""

import sys
from dataclasses import dataclass

import typer
from rich.markup import escape
from rich.table import Table

from apes.accounting.words import judged, upwards
from apes.cli.display import console, working
from apes.errors import ParameterError
from apes.federation.agreed_model import check_own
from apes.federation.fingerprints import check_fingerprint
from apes.federation.offer import Offer, offer_of
from apes.federation.terms import FederationTerms
from apes.federation.vault.lifetime import Lifetime
from apes.mathematics.arrays import F64


@dataclass(frozen=True)
class Invited:
    """What somebody wants to join, before their data is looked at."""

    terms: FederationTerms
    lifetime: Lifetime
    fingerprints: dict[str, str]


def check_invited(invited: Invited, model: str | None, fingerprint: str | None) -> Invited:
    """Refuse an invitation that is not the one that was told, or a model that is not the one that was named."""
    if fingerprint is not None:
        check_fingerprint(fingerprint, invited.fingerprints["invitation"])
    check_own(invited.terms.model, model)
    return invited


def ask(invited: Invited, budgets: F64, yes: bool) -> Offer:
    """Show what is offered to people with these budgets, ask whether to accept it, and return it.

    Raises:
        ParameterError: If nobody can be asked, unless ``yes`` was said beforehand.
        typer.Exit: With code 1, if the answer is no.
    """
    with working() as say:
        say("certifying what is offered")
        offer = offer_of(invited.terms, budgets, invited.lifetime, invited.fingerprints)
    show(offer)
    if yes:
        return offer
    if not sys.stdin.isatty():
        raise ParameterError("yes must be given where nobody can be asked: read the above, then add --yes")
    if not typer.confirm("Join?", default=False, err=True):
        typer.echo("apes: nothing was made", err=True)
        raise typer.Exit(1)
    return offer


def show(offer: Offer) -> None:
    """Print what is offered."""
    table = Table(show_header=False, box=None, title="[bold]What you are asked to join", title_justify="left")
    rows = {
        "trained": _trained(offer),
        "on": _rows(offer),
        "rounds": f"{offer.rounds:,}, each of at least {offer.smallest_cohort:,} people",
        "stops at": "nothing" if offer.target is None else f"epsilon {offer.target:g}, which the shuffler keeps to",
        "your limit": "none: --lifetime-epsilon sets one"
        if offer.lifetime is None
        else f"epsilon {offer.lifetime:g} over everything that ever leaves your vault",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    for caveat in offer.caveats:
        table.add_row("beware", escape(caveat))
    for number, who in enumerate(offer.trusted):
        table.add_row("you rely on" if number == 0 else "", escape(who))
    console.print(table)
    console.print(_prices(offer))
    worst = offer.prices[-1]
    console.print(f"[bold]budget {worst.budget:.4g}, {offer.rounds:,} rounds: {judged(worst.central, offer.delta)}")
    prints = Table(show_header=False, box=None, title="[bold]Compare by another channel", title_justify="left")
    for name, value in offer.fingerprints.items():
        prints.add_row(name, value)
    console.print(prints)


def _trained(offer: Offer) -> str:
    model = offer.model if offer.model_digest is None else f"{offer.model}, installed, digest {offer.model_digest}"
    return f"{model}; {offer.dimensions:,} coordinates per report"


def _rows(offer: Offer) -> str:
    if offer.columns is not None:
        # All of them: what is not shown would be the one that matters.
        return f"{len(offer.columns)} columns, {', '.join(offer.columns)}; to tell {offer.label}"
    count = "rows as the model wants them" if offer.features is None else f"rows of {offer.features:,} features"
    return f"{count} ({offer.feature_map})"


def _prices(offer: Offer) -> Table:
    table = Table(title="[bold]What it may tell about you", title_justify="left", caption_justify="left")
    table.caption = (
        f"Epsilon over all rounds, at delta {offer.delta:.3g}. Certified: whatever the analyzer does, at the smallest "
        "cohort. Colluding: what is left if shuffler and analyzer work together."
    )
    for heading in ("local budget", "users", "a report", "certified", "", "colluding"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for price in offer.prices:
        figures = f"{price.budget:.4g}", f"{price.users:,}", f"{price.report:,.4g}"
        colluding = "no bound" if price.colluding is None else upwards(price.colluding)
        central = "no bound" if price.central is None else upwards(price.central)
        table.add_row(*figures, central, price.meaning, colluding)
    return table

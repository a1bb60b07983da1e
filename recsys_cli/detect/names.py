"""Usual names of columns by role."""

from __future__ import annotations

import re
import unicodedata

TYPED = re.compile(r":(token|float)(_seq)?$")
"""End of a typed name, as in `user_id:token`."""

# Names without case, underscores and spaces, in order of preference.
ALIASES: dict[str, tuple[str, ...]] = {
    role: tuple(names.split())
    for role, names in {
        "user": "userid user customerid customer uid visitorid memberid reviewerid userhash accountid account clientid "
        "buyerid shopperid householdid listenerid listener member memberno visitor viewer reader shopper buyer reviewer person "
        "personid userpseudoid customerkey userkey useruuid userguid deviceid "
        "cookieid authorid kunde kundeid kundennummer nutzer nutzerid cliente clienteid usuario utilisateur client "
        "email emailaddress username userfullname login patron patronid patronbarcode borrower borrowerid respondent "
        "respondentid participant participantid auftraggeber nclient numclient",
        "session": "sessionid session sess visitid basketid orderid invoiceno invoiceid transactionid usersession "
        "checkoutid utripid playlistid basket basketno cartid receiptid ticketid ordernumber invoice transaction transactionno "
        "transactions tid billno billid bill salesordernumber receipt receiptno",
        "item": "itemid item movieid productid product articleid asin iid sku trackid bookid artistid songid newsid "
        "videoid gameid parentasin isbn adid poi poiid locationid venueid stockcode repoid beerid recipeid jobid "
        "hotelid courseid postid contentid goodsid businessid animeid track artist movie song article variantid "
        "recipe book video game podcast jokeid joke "
        "aid artikel artikelnummer produkt produktid producto produit lineitemsku lineitemname material materialnummer "
        "biblionumber trackuri spotifytrackuri reference "
        "items itemids itemidlist history products movies tracks songs sequence itemseq",
        "impression": "impressionid impression impid displayid requestid searchid srchid slateid listid auctionid pageviewid "
        "logid queryid",
        "label": "label clicked click liked like target purchased isclick converted conversion bought y response outcome purchase",
        "rating": "rating stars vote score overall bookrating ratingvalue reviewoverall ratings",
        "count": "plays playcount count numplays listens listencount quantity qty weight frequency freq purchases "
        "units anzahl cantidad playtime playtimeforever playtimehours hours menge views clicks visits numclicks numviews n",
        "event": "event eventtype eventname action actiontype behavior behaviour behaviortype behaviourtype "
        "interactiontype interaction activity feedbacktype feedback type",
        "timestamp": "timestamp time ts unixreviewtime eventtime datetime date createdat created eventtimestamp "
        "reviewtime ratingtime clicktime unixtime occurredat purchasedate orderdate invoicedate tdat checkintime at "
        "when localtime servertime updatedat day datum zeit fecha",
        "order": "position pos order rank seq sequenceno seqno step index idx rownumber rownum rowid turn place",
        "title": "title name itemname productname prodname movietitle headline description artistname trackname",
    }.items()
}
EVENT_WEIGHTS: dict[str, int] = {
    "view": 1, "pageview": 1, "detail": 1, "click": 1, "clicks": 1, "impression": 1, "pv": 1, "play": 1, "listen": 1, "open": 1,
    "read": 1, "visit": 1, "viewitem": 1, "productview": 1, "like": 2, "fav": 2, "favorite": 2, "favourite": 2, "wishlist": 2,
    "save": 2, "bookmark": 2, "share": 2, "follow": 2, "subscribe": 3, "cart": 3, "addtocart": 3, "add": 3, "basket": 3,
    "addtobasket": 3, "order": 5, "buy": 5, "purchase": 5, "transaction": 5, "checkout": 5, "carts": 3, "orders": 5,
}  # fmt: skip
"""Weight by event, simplified."""
POSITIVE_TEXTS = frozenset(
    {"yes", "y", "true", "t", "like", "liked", "up", "thumbsup", "positive", "click", "clicked", "ja", "si", "oui"}
)
"""Texts of a positive label, simplified."""
NO_EVENT_WORDS = frozenset(
    {"birth", "birthday", "born", "release", "released", "published", "expires", "expiry", "signup", "registered"}
)
"""Words in names of times other than that of the interaction."""
NEGATIVE_EVENTS = frozenset({"removefromcart", "remove", "dislike", "skip", "unlike", "return", "refund", "hide"})


def simplified(name: str) -> str:
    """Return a name without its type, case, accents and punctuation."""
    return re.sub(r"[^a-z0-9]", "", unicodedata.normalize("NFKD", TYPED.sub("", name)).lower())


def is_known(name: str) -> bool:
    """Whether a name is usual for a role."""
    return any(simplified(name) in names for names in ALIASES.values())


def words(name: str) -> list[str]:
    """Return the lower-case words of a name in snake case, camel case or with spaces."""
    parts = re.sub(r"([a-z])([A-Z])", r"\1 \2", TYPED.sub("", name))
    return [word for word in re.split(r"[^a-z0-9]+", parts.lower()) if word]

"""Small files in the exact formats of the datasets' publishers, with made-up values and the odd rows of the originals."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

PAIRS = [(user, item) for user in range(12) for item in range(12) if user != item]
"""A dense 11-core: each user has all items but one."""


def _gz(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


def _zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _tar_gz(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def _criteo_rows(rows: int) -> str:
    """Return lines with a negative and a missing count, and a missing token."""
    lines = []
    for row in range(rows):
        counts = ["" if (row + n) % 7 == 0 else str((row * n) % 50 - (n == 2) * 3) for n in range(1, 14)]
        tokens = ["" if (row + n) % 11 == 0 else f"{(row % 5) * 977 + n:08x}" for n in range(1, 27)]
        lines.append("\t".join([str(int(row % 3 == 0)), *counts, *tokens]))
    return "\n".join(lines) + "\n"


def criteo_kaggle(folder: Path) -> Path:
    """dac.tar.gz: train.txt beside a test file without labels."""
    path = folder / "dac.tar.gz"
    members = {"readme.txt": b"...", "train.txt": _criteo_rows(120).encode(), "test.txt": b"1\t2\n"}
    _tar_gz(path, members)
    return path


def criteo_1tb(folder: Path) -> Path:
    """Two days, one packed and one unpacked."""
    _gz(folder / "day_0.gz", _criteo_rows(60))
    (folder / "day_1").write_text(_criteo_rows(60))
    return folder


def avazu(folder: Path) -> Path:
    """train.gz: ids beyond 64 bits, and hours as YYMMDDHH."""
    names = "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    names += "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
    rows = [
        f"{10000000000000000000 + row * 7919},{int(row % 4 == 0)},1410{21 + row // 24:02d}{row % 24:02d},1005,{row % 2},"
        f"{row % 6:08x},f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,a99f214a,{row:08x},{row % 3:08x},1,{row % 2 * 2},"
        f"15706,320,50,1722,0,35,{-1 if row % 3 else 100084},79"
        for row in range(120)
    ]
    _gz(folder / "train.gz", "\n".join([names, *rows]) + "\n")
    return folder / "train.gz"


def rees46(folder: Path) -> Path:
    """One packed and one unpacked month: missing category, brand and session, zones, 64-bit categories."""
    header = "event_time,event_type,product_id,category_id,category_code,brand,price,user_id,user_session\n"

    def month(number: int) -> str:
        lines = []
        for row, (user, item) in enumerate(PAIRS):
            kind = ("view", "cart", "purchase", "cart")[row % 4]
            brand, code = ("", "") if row % 9 == 0 else ("xiaomi", "electronics.smartphone")
            session = "" if row == 5 else f"{user:08x}-26de-4f1e-8cd6-bb5c{row % 5:08x}"
            lines.append(
                f"2019-{number}-{1 + row % 28:02d} 00:00:{row % 60:02d} UTC,{kind},{1003461 + item},2053013555631882655,"
                f"{code},{brand},{489.07 if row % 8 else '0.00'},{520088904 + user},{session}\n"
            )
        return header + "".join(lines)

    _gz(folder / "2019-Oct.csv.gz", month(10))
    (folder / "2019-Nov.csv").write_text(month(11))
    return folder


def yoochoose(folder: Path) -> Path:
    """The archive of Kaggle: no header, special offers "S", long brand numbers, prices of 0."""
    clicks = [
        f"{user + 1},2014-04-{1 + item:02d}T10:{user:02d}:09.277Z,{214536500 + item},{('0', 'S', '7', '2089045122')[item % 4]}"
        for user, item in PAIRS
    ]
    buys = ["1,2014-04-02T10:55:31.000Z,214536501,0,0", "2,2014-04-02T18:44:58.683Z,214536502,12462,1"]
    members = {
        "yoochoose-data/yoochoose-clicks.dat": "\n".join(clicks).encode() + b"\n",
        "yoochoose-data/yoochoose-buys.dat": "\n".join(buys).encode() + b"\n",
        "yoochoose-data/yoochoose-test.dat": b"5,2014-04-07T17:13:46.713Z,214530776,0\n",
    }
    _zip(folder / "archive.zip", members)
    return folder / "archive.zip"


def retailrocket(folder: Path) -> Path:
    """The archive of Kaggle: times in ms, a transaction id for transactions alone."""
    kinds = ("view", "addtocart", "transaction")
    rows = [
        f"{1433221332117 + row * 86_400_00},{257597 + user},{kinds[row % 3]},{355908 + item},{row if row % 3 == 2 else ''}"
        for row, (user, item) in enumerate(PAIRS)
    ]
    text = "\n".join(["timestamp,visitorid,event,itemid,transactionid", *rows]) + "\n"
    _zip(folder / "archive.zip", {"events.csv": text.encode(), "category_tree.csv": b"categoryid,parentid\n1016,213\n"})
    return folder / "archive.zip"


def _mind(folder: Path, size: str) -> Path:
    """Both archives: users without a history, quotes in titles, and news of both parts."""
    news = "".join(
        f'N{item}\tnews\tnewsus\tThe "Brands" of {item}\t{"" if item % 3 else "An abstract"}\thttps://x.ms/{item}\t[]\t[]\n'
        for item in range(12)
    )
    for part, day in (("train", 11), ("dev", 15)):
        lines = []
        for user in range(12):
            shown = " ".join(f"N{item}-{int(item % 4 == user % 4)}" for item in range(12) if item != user)
            history = {3: "", 4: " ".join(f"N{click % 12}" for click in range(60))}.get(user, "N1 N2")
            lines.append(
                f"{user + 1}\tU{user}\t11/{day}/2019 {1 + user % 9}:05:58 {'AM' if user % 2 else 'PM'}\t{history}\t{shown}\n"
            )
        members = {"behaviors.tsv": "".join(lines), "news.tsv": news + f"N99{day}\tsports\tgolf\tT\tA\tu\t[]\t[]\n"}
        name = f"MIND{size}_{part}"
        packed = {f"{name}/{file}": text.encode() for file, text in members.items()}
        _zip(folder / f"{name}.zip", {**packed, f"{name}/entity_embedding.vec": b"Q1\t0.1\n"})
    return folder


def mind_small(folder: Path) -> Path:
    """The archives of MIND small."""
    return _mind(folder, "small")


def mind_large(folder: Path) -> Path:
    """The archives of MIND large."""
    return _mind(folder, "large")


def amazon_reviews_2023(folder: Path) -> Path:
    """JSON lines: prices of several types, half a surrogate pair and zero bytes in texts, products without a store."""
    reviews = [
        {
            "rating": float(1 + (user + item) % 5), "title": "Lovely", "images": [],
            "text": 'two\nlines, "quotes" \u0000' + "\ud83d" * (item == 7),
            "asin": f"B00YQ6X9{item:02d}", "parent_asin": f"B00YQ6X8{item:02d}", "user_id": f"AGKHLEW2SOWHNMFQ{user:02d}",
            "timestamp": 1588687728923 + 86_400_000 * item, "helpful_vote": 0, "verified_purchase": item % 2 == 0,
        }
        for user, item in PAIRS
    ]  # fmt: skip
    products = [
        {
            "main_category": "All Beauty", "title": f"Product {item}", "average_rating": 4.8, "rating_number": 10,
            "features": [], "price": (None, 15.99, "from 3.50")[item % 3], "store": None if item == 2 else "Howard",
            "categories": ["Hair"] * (item % 2),
            "details": {"Package Dimensions": "7 x 2"}, "parent_asin": f"B00YQ6X8{item:02d}", "bought_together": None,
        }
        for item in range(12)
    ]  # fmt: skip
    for name, rows in (("All_Beauty", reviews), ("meta_All_Beauty", products)):
        _gz(folder / f"{name}.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _s3rec(folder: Path, category: str) -> Path:
    """Lines `user item item …`; each user's items are in order of time."""
    lines = [f"{user + 1} " + " ".join(str(item + 1) for other, item in PAIRS if other == user) for user in range(12)]
    (folder / f"{category}.txt").write_text("\n".join(lines) + "\n")
    return folder / f"{category}.txt"


def s3rec_beauty(folder: Path) -> Path:
    """Beauty."""
    return _s3rec(folder, "Beauty")


def s3rec_sports(folder: Path) -> Path:
    """Sports."""
    return _s3rec(folder, "Sports_and_Outdoors")


def s3rec_toys(folder: Path) -> Path:
    """Toys."""
    return _s3rec(folder, "Toys_and_Games")


def lastfm_360k(folder: Path) -> Path:
    """Tabs without a header: no MusicBrainz id, a date in place of a user, and a row with a missing field."""
    plays = [
        f'{user:040x}\t{"" if item % 3 else f"{item:036d}"}\tartist "{item}" ü\t{2000 - item}\n' for user, item in PAIRS
    ]
    plays += ["sep 20, 2008\t7fb57fba-a6ef-44c2-abab-2fa3bdee607e\tartist\t14\n", f"{3:040x}\tno plays here\n"]
    profile = [
        f"{user:040x}\t{'f' if user % 2 else ''}\t{22 if user % 3 else ''}\tGermany\tFeb 1, 2007\n"
        for user in range(12)
    ]
    members = {
        "lastfm-dataset-360K/README.txt": b"...",
        "lastfm-dataset-360K/usersha1-artmbid-artname-plays.tsv": "".join(plays).encode(),
        "lastfm-dataset-360K/usersha1-profile.tsv": "".join(profile).encode(),
    }
    _tar_gz(folder / "lastfm-dataset-360K.tar.gz", members)
    return folder / "lastfm-dataset-360K.tar.gz"


def hetrec_lastfm(folder: Path) -> Path:
    """Tabs, CRLF line ends, names with quotes, and a key that is called id in artists.dat."""
    plays = "userID\tartistID\tweight\r\n" + "".join(
        f"{user + 2}\t{item + 51}\t{100 + item}\r\n" for user, item in PAIRS
    )
    artists = "id\tname\turl\tpictureURL\r\n" + "".join(
        f'{item + 51}\tArtist "{item}" é\thttp://www.last.fm/music/{item}\t{"" if item == 3 else "http://x/y.jpg"}\r\n'
        for item in range(12)
    )
    members = {"user_artists.dat": plays.encode(), "artists.dat": artists.encode(), "tags.dat": b"tagID\ttagValue\r\n"}
    _zip(folder / "hetrec2011-lastfm-2k.zip", members)
    return folder / "hetrec2011-lastfm-2k.zip"


def gowalla(folder: Path) -> Path:
    """Tabs without a header, ISO times in UTC, the latest check-in first."""
    rows = [
        f"{user}\t2010-10-{1 + item:02d}T23:{user:02d}:27Z\t30.2359091167\t-97.7951395833\t{22847 + item}\n"
        for user, item in reversed(PAIRS)
    ]
    _gz(folder / "loc-gowalla_totalCheckins.txt.gz", "".join(rows))
    return folder / "loc-gowalla_totalCheckins.txt.gz"


def book_crossing(folder: Path) -> Path:
    """Latin-1: escaped quotes, entities, a backslash before a closing quote, years that are none, NULL ages."""
    ratings = '"User-ID";"ISBN";"Book-Rating"\r\n' + "".join(
        f'"{276700 + u}";"03{i:07d}X";"{(u + i) % 11}"\r\n' for u, i in PAIRS
    )
    books = '"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication";"Publisher";"Image-URL-S";"Image-URL-M";"Image-URL-L"\r\n'
    titles = [
        'The \\"Real\\" J. &amp; Co; a tale',
        "Misérables",
        'Creating the X-Men (Level 4)\\";Michael Teitelbaum',
        "Plain",
    ]
    for item in range(12):
        title = titles[item % 4]
        author = "" if item % 4 == 2 else '"Victor Hugo";'
        books += f'"03{item:07d}X";"{title}";{author}"{0 if item == 5 else 2000}";"Penguin";"s";"m";"l"\r\n'
    users = '"User-ID";"Location";"Age"\r\n' + "".join(
        f'"{276700 + user}";"köln, n/a, germany";{"NULL" if user % 2 else chr(34) + "18" + chr(34)}\r\n'
        for user in range(12)
    )
    files = {"BX-Book-Ratings.csv": ratings, "BX-Books.csv": books, "BX-Users.csv": users}
    _zip(folder / "BX-CSV-Dump.zip", {name: text.encode("latin-1") for name, text in files.items()})
    return folder / "BX-CSV-Dump.zip"


def steam(folder: Path) -> Path:
    """Lines of Python literals: both kinds of quotes, missing hours, and a line that calls a function."""
    lines = []
    for user, item in PAIRS:
        text = 'u"it\'s (((great)))"' if item % 2 else "u'so \\'so\\''"
        hours = "" if item == 4 else f"u'hours': {item}.5, "
        lines.append(
            f"{{u'username': u'Chaos Syren {user}', {hours}u'products': 41, u'product_id': u'{725280 + item}', u'page_order': 0, "
            f"u'date': u'2017-12-{1 + item:02d}', u'text': {text}, u'early_access': False, u'page': 1}}\n"
        )
    lines.append("{'username': __import__('os').getcwd(), 'product_id': '1', 'date': '2017-12-17'}\n")
    lines.append(f"{'[' * 5_000}\n")
    games = "".join(
        f"{{u'publisher': u'Kotoshiro', u'genres': [u'Action', u'Indie'], u'app_name': u'Game {item}', "
        f"u'release_date': u'2018-01-04', u'price': 4.99, u'id': u'{725280 + item}'}}\n"
        for item in range(12)
    )
    _gz(folder / "steam_reviews.json.gz", "".join(lines))
    _gz(folder / "steam_games.json.gz", games + "{u'url': u'no id'}\n")
    return folder


def _likes(users: int, items: int, *, seed: int = 0) -> list[list[int]]:
    """Return distinct items of each user, 6 to 16 of a half of the items that most of its users share."""
    random = Random(seed)
    weights = [[3.0 if (item + user) % 2 else 0.5 for item in range(items)] for user in (0, 1)]
    return [
        list(dict.fromkeys(random.choices(range(items), weights[user % 2], k=random.randint(12, 24))))[:16]
        for user in range(users)
    ]


def ml1m_sasrec(folder: Path) -> Path:
    """A line `user item` per interaction, in order of user and time, from 1."""
    lines = [f"{user + 1} {item + 1}\n" for user, items in enumerate(_likes(60, 40)) for item in items]
    (folder / "ml-1m.txt").write_text("".join(lines))
    return folder / "ml-1m.txt"


def ml1m_ncf(folder: Path) -> Path:
    """Three files of NCF: ratings with times, and lines `(user,item)` with 99 negatives, some of them twice."""
    random = Random(1)
    train, test, negatives = [], [], []
    for user, items in enumerate(_likes(60, 40)):
        times = sorted(random.sample(range(956_703_932, 978_300_000), len(items)))
        rated = [f"{user}\t{item}\t{random.randint(1, 5)}\t{time}\n" for item, time in zip(items, times, strict=True)]
        random.shuffle(rated[:-1])
        train += rated[:-1]
        test.append(rated[-1])
        others = [str(item) for item in range(40) if item not in items]
        negatives.append("\t".join([f"({user},{items[-1]})", *random.choices(others, k=99)]) + "\n")
    for part, lines in (("train.rating", train), ("test.rating", test), ("test.negative", negatives)):
        (folder / f"ml-1m.{part}").write_text("".join(lines))
    return folder


def _halves() -> tuple[list[list[int]], list[list[int]]]:
    likes = _likes(60, 40)
    return [items[:-3] for items in likes], [items[-3:] if user % 20 else [] for user, items in enumerate(likes)]


def _m1_lines(folder: Path) -> Path:
    """Lines `user item item …`: users without test items, and blanks at the ends."""
    for name, lists in zip(("train.txt", "test.txt"), _halves(), strict=True):
        lines = [" ".join(map(str, [user, *items])) + (" " if user % 3 else "") for user, items in enumerate(lists)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def _m1_json(folder: Path) -> Path:
    """A list of items per user, empty ones included, and an unused validation list."""
    for name, lists in zip(("train_data", "test_data"), _halves(), strict=True):
        (folder / f"{name}.json").write_text(json.dumps(lists))
    (folder / "validation_data.json").write_text("[]")
    return folder


def ml20m_liang(folder: Path) -> Path:
    """ratings.csv of ml-20m.zip: half stars, users with few likes, and items of held-out users alone."""
    random = Random(2)
    lines = ["userId,movieId,rating,timestamp\n"]
    for user, items in enumerate(_likes(300, 30), start=1):
        kept = items[: 4 if user % 40 == 0 else 8]
        kept += [40 + user] if user % 10 == 0 else []
        lines += [
            f"{user},{item + 1},{'4.0' if random.random() < 0.95 or user < 250 else '3.5'},11124860{10 + row}\n"
            for row, item in enumerate(sorted(kept))
        ]
    members = {"ml-20m/ratings.csv": "".join(lines).encode(), "ml-20m/movies.csv": b"movieId,title,genres\n"}
    _zip(folder / "ml-20m.zip", members)
    return folder / "ml-20m.zip"


OF_PROTOCOLS: dict[str, Callable[[Path], Path]] = {
    "ml1m-sasrec": ml1m_sasrec, "ml1m-ncf": ml1m_ncf, "gowalla-m1": _m1_lines, "amazon-cds-m1": _m1_lines,
    "movielens1m-m1": _m1_json, "amazon-electronics-m1": _m1_json, "ml20m-liang": ml20m_liang,
}  # fmt: skip
"""Like SAMPLES: the datasets of `recsys bench --protocol` without another config."""

SAMPLES: dict[str, Callable[[Path], Path]] = {
    "criteo-kaggle": criteo_kaggle, "criteo-1tb": criteo_1tb, "avazu": avazu, "rees46": rees46, "yoochoose": yoochoose,
    "retailrocket": retailrocket, "mind-small": mind_small, "mind-large": mind_large, "amazon-reviews-2023": amazon_reviews_2023,
    "amazon-5core-beauty": s3rec_beauty, "amazon-5core-sports": s3rec_sports, "amazon-5core-toys": s3rec_toys,
    "lastfm-360k": lastfm_360k, "hetrec-lastfm": hetrec_lastfm, "gowalla": gowalla, "book-crossing": book_crossing, "steam": steam,
}  # fmt: skip
"""Dataset name → writer of its files into a folder; returns the path for --from-file."""

#!/usr/bin/env python3
"""k-NN and linear probes against scikit-learn, retrieval against a brute-force numpy script.

    eval_test.py eval_tool               the program of eval_tool.c"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True

try:
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import confusion_matrix
    from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
    from sklearn.preprocessing import StandardScaler
except ImportError as error:
    print(f"ok 1 - all # SKIP {error}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)

from harness import finish, report

warnings.simplefilter("ignore")  # scikit-learn's, about an optimum it has not quite reached
PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
RANDOM = np.random.default_rng(20261115)


def run(folder, *arguments):
    """The tool's answer; arrays are passed as files."""
    words = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            path = os.path.join(folder, f"{number}.npy")
            x = argument.astype("<f4")
            np.save(path, x if x.ndim == 2 else x[:, None])
            argument = path
        words.append(str(argument))
    done = subprocess.run([PROGRAM] + words, capture_output=True, timeout=100)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode().strip())
    return json.loads(done.stdout)


def blobs(count, dim, classes, noise, centres):
    labels = RANDOM.integers(classes, size=count)
    labels[:classes] = np.arange(classes)
    x = centres[labels] + noise * RANDOM.standard_normal((count, dim))
    return x.astype(np.float32), labels


def unit(x):
    x = x.astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# ---- k-NN ----

def knn_right(train, labels, test, expected, k, temperature, classes, skip_self=False):
    """How many are right by scikit-learn's neighbours and its weighted vote."""
    if not skip_self:
        # Its distance is 1 - cos; weights exp(cos/T) up to a factor.
        model = KNeighborsClassifier(k, metric="cosine", algorithm="brute",
                                     weights=lambda d: np.exp(-d / temperature))
        return int((model.fit(train, labels).predict(test) == expected).sum())
    model = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(train)
    distance, row = model.kneighbors()  # without X: the training set, a row not its own neighbour
    votes = np.zeros((len(train), classes))
    for c in range(classes):
        votes[:, c] = (np.exp(-distance / temperature) * (labels[row] == c)).sum(axis=1)
    return int((votes.argmax(axis=1) == labels).sum())


def test_knn(folder):
    ks, temperatures = [1, 5, 20, 200], [.02, .07, 1.0]
    for dim, classes, noise in ((16, 5, 1.2), (64, 20, 2.0), (3, 2, 1.5)):
        centres = RANDOM.standard_normal((classes, dim))
        train, labels = blobs(1500, dim, classes, noise, centres)
        test, expected = blobs(700, dim, classes, noise, centres)
        names = ",".join(map(str, ks)), ",".join(map(str, temperatures))
        got = run(folder, "knn", train, labels, test, expected, classes, *names)["right"]
        want = [knn_right(train, labels, test, expected, k, t, classes) for k in ks
                for t in temperatures]
        report(got == want, f"knn {dim} dimensions, {classes} classes", f"{got}, want {want}")
        report(max(got) < 700 and min(got) > 700 / classes, f"knn {dim} dimensions: not trivial",
               got)
        got = run(folder, "knn", train, labels, "-", "-", classes, *names)["right"]
        want = [knn_right(train, labels, None, None, k, t, classes, True) for k in ks
                for t in temperatures]
        report(got == want, f"knn {dim} dimensions, leave one out", f"{got}, want {want}")


# ---- probes ----

def objective(parameters, x, labels, l2):
    """Mean cross-entropy + l2/2 |W|^2, in double; parameters [classes][dim + 1]."""
    score = x.astype(np.float64) @ parameters[:, :-1].T + parameters[:, -1]
    most = score.max(axis=1, keepdims=True)
    loss = np.log(np.exp(score - most).sum(axis=1)) + most[:, 0] - score[np.arange(len(x)), labels]
    return loss.mean() + l2 / 2 * (parameters[:, :-1] ** 2).sum()


def test_probe(folder):
    for dim, classes, noise, l2 in ((20, 7, 1.5, 1e-2), (50, 10, 2.0, 1e-3), (5, 2, 1.0, 1e-4)):
        centres = RANDOM.standard_normal((classes, dim))
        train, labels = blobs(2000, dim, classes, noise, centres)
        test, expected = blobs(1000, dim, classes, noise, centres)
        got = run(folder, "probe", train, labels, test, expected, classes, l2, 0, 1e-8)
        model = LogisticRegression(C=1 / (len(train) * l2), tol=1e-10, max_iter=20000,
                                   multi_class="multinomial").fit(train.astype(np.float64), labels)
        coefficients = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)
        if classes == 2:
            # scikit-learn keeps one row w; the scores of the two classes are -w.x and w.x
            coefficients = np.concatenate([-coefficients, coefficients])
        want = objective(coefficients, train, labels, l2)
        name = f"probe {dim} dimensions, {classes} classes"
        report(got["converged"] == 1 and got["gradient"] <= 1e-8, name + ": converged",
               got["gradient"])
        # The optimum is one: both losses are within gradient^2/l2 of it, far below 1e-6.
        report(abs(got["loss"] - want) < 1e-6, name + ": loss", f"{got['loss']}, want {want}")
        own = np.array(got["parameters"]).reshape(classes, dim + 1)
        report(abs(got["loss"] - objective(own, train, labels, l2)) < 1e-12,
               name + ": the loss is that of its parameters", got["loss"])
        # Biases are free up to a constant, which changes no score's difference.
        off = np.abs(own[:, :-1] - coefficients[:, :-1]).max()
        report(off < 1e-3, name + ": weights", off)
        predicted = model.predict(test)
        # A sample on the border may fall to either side.
        report(abs(got["right"] - int((predicted == expected).sum())) <= 1, name + ": accuracy",
               got["right"])
        matrix = np.array(got["confusion"]).reshape(classes, classes)
        off = np.abs(matrix - confusion_matrix(expected, predicted, labels=np.arange(classes)))
        report(off.sum() <= 2, name + ": confusion", off.sum())
        score = model.decision_function(test)
        if classes > 5:
            top5 = int((np.argsort(-score, axis=1)[:, :5] == expected[:, None]).sum())
            report(abs(got["top5"] - top5) <= 1, name + ": top 5", f"{got['top5']}, want {top5}")


def test_standardised(folder):
    """Features of very different scale, as scikit-learn's pipeline takes them."""
    dim, classes, l2 = 12, 4, 1e-3
    train, labels = blobs(1500, dim, classes, 1.5, RANDOM.standard_normal((classes, dim)))
    stretch, shift = np.logspace(-2, 2, dim), RANDOM.standard_normal(dim)
    train = (train * stretch + shift).astype(np.float32)
    got = run(folder, "probe", train, labels, train, labels, classes, l2, 1, 1e-8)
    x = StandardScaler().fit_transform(train.astype(np.float64))
    model = LogisticRegression(C=1 / (len(x) * l2), tol=1e-10, max_iter=20000).fit(x, labels)
    want = objective(np.concatenate([model.coef_, model.intercept_[:, None]], axis=1), x, labels,
                     l2)
    report(abs(got["loss"] - want) < 1e-6, "probe, standardised: loss",
           f"{got['loss']}, want {want}")
    right = int((model.predict(x) == labels).sum())
    report(abs(got["right"] - right) <= 1, "probe, standardised: accuracy",
           f"{got['right']}, want {right}")


def test_choice(folder):
    """Of several l2 one of them is fitted: the loss is that of a fit with it alone."""
    train, labels = blobs(600, 30, 3, 2.5, RANDOM.standard_normal((3, 30)))
    got = run(folder, "probe", train, labels, train, labels, 3, ".3,.003,.00003", 0, 1e-8)
    alone = run(folder, "probe", train, labels, train, labels, 3, got["l2"], 0, 1e-8)
    report(got["l2"] in (.3, .003, .00003) and abs(got["loss"] - alone["loss"]) < 1e-10,
           "probe: the l2 chosen", f"{got['l2']}: {got['loss']}, alone {alone['loss']}")


# ---- retrieval ----

def retrieve(x, batch):
    """x [views][samples][dim]: by sorting all candidates of every query, in double."""
    views, samples, dim = x.shape
    batch = batch or samples
    first, precision = [], []
    for start in range(0, samples - batch + 1, batch):
        rows = unit(x[:, start:start + batch].reshape(views * batch, dim))
        sample = np.tile(np.arange(batch), views)
        cosine = rows @ rows.T
        np.fill_diagonal(cosine, -np.inf)
        for query, row in enumerate(cosine):
            order = np.argsort(-row)[:-1]
            places = np.flatnonzero(sample[order] == sample[query])
            first.append(places[0])
            precision.append(((1 + np.arange(views - 1)) / (1 + places)).mean())
    first = np.array(first)
    return {"r1": (first < 1).mean(), "r3": (first < 3).mean(), "r5": (first < 5).mean(),
            "map": np.mean(precision), "queries": len(first), "candidates": views * batch - 1}


def test_retrieval(folder):
    for views, samples, dim, batch in ((2, 300, 32, 100), (2, 250, 16, 0), (4, 130, 24, 50)):
        base = RANDOM.standard_normal((1, samples, dim))
        x = (base + 1.1 * RANDOM.standard_normal((views, samples, dim))).astype(np.float32)
        got = run(folder, "retrieval", x.reshape(-1, dim), views, batch)
        want = retrieve(x, batch)
        # Random directions have no ties: equal but for the order of a sum.
        report(all(abs(got[key] - want[key]) < 1e-12 for key in want) and want["r1"] < want["r5"],
               f"retrieval of {views} x {samples}, batch {batch}", f"{got}, want {want}")


def test_mismatch(folder):
    x = RANDOM.standard_normal((10, 3))
    try:
        run(folder, "knn", x, np.zeros(9), "-", "-", 2, "1", "1")
        report(False, "labels that do not match", "accepted")
    except RuntimeError as why:
        report("10 rows of features but 9 labels" in str(why), "labels that do not match", why)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_knn, test_probe, test_standardised, test_choice, test_retrieval,
                     test_mismatch):
            test(folder)
    finish()


main()

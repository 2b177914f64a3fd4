"""The losses once more, as the paper and docs/mathematics.md print them: plain PyTorch in float64, all pairs
at once, derivatives by autograd. Nothing here is shared with the library."""
import math

import numpy as np
import torch

TAIL = 1e-22


def unit(z):
    return z / z.norm(dim=-1, keepdim=True)


# ---- kernels: a spectrum a_0, a_1 ... of Gegenbauer polynomials, or a function of the cosine ------


def eigenvalue(l, d):
    return l * (l + d - 2)


def multiplicity(l, d):
    """dim of the harmonics of degree l: all homogeneous polynomials less those that |x|^2 divides."""
    return math.comb(l + d - 1, d - 1) - (math.comb(l + d - 3, d - 1) if l >= 2 else 0)


def normalised(weights, d, with_multiplicity=True):
    a = [w * (multiplicity(l, d) if with_multiplicity else 1) for l, w in enumerate(weights)]
    return [x / math.fsum(a) for x in a]


def heat(d, t, **options):
    weights, l = [], 0
    while l < 3 or multiplicity(l, d) * math.exp(-t * eigenvalue(l, d)) > TAIL * max(
            w * multiplicity(k, d) for k, w in enumerate(weights)):
        weights.append(math.exp(-t * eigenvalue(l, d)))
        l += 1
    return normalised(weights, d, **options)


def band(d, degree, **options):
    return normalised([1.0] * (degree + 1), d, **options)


def polynomials(c, d, count):
    """P_0 ... P_{count-1} of the cosines, with P_l(1) = 1."""
    p = [torch.ones_like(c), c]
    for l in range(1, count - 1):
        p.append(((2 * l + d - 2) * c * p[l] - l * p[l - 1]) / (l + d - 2))
    return p[:count]


def series(c, d, a):
    return sum(x * p for x, p in zip(a, polynomials(c, d, len(a))))


def marginal(d, points=400):
    """Nodes and weights for one coordinate of a uniform point: u = sin(theta), density cos^(d-2)."""
    x, w = np.polynomial.legendre.leggauss(points)
    theta = x * math.pi / 2
    w = w * np.cos(theta) ** (d - 2)
    return torch.from_numpy(np.sin(theta)), torch.from_numpy(w / w.sum())


def induced(c, d, s2):
    u, w = marginal(d)
    return (torch.exp(-(1 - c)[..., None] * s2 * u * u) * w).sum(-1)


def poisson(c, d, r):
    return ((1 - r) ** 2 / (1 - 2 * r * c + r * r)) ** (d / 2)


# ---- discrepancies -------------------------------------------------------------------------------


def cosines(z):
    x = unit(z)
    return x @ x.T


def mmd(z, a):
    d = z.shape[1]
    return (series(cosines(z), d, a).mean() - a[0]) / (1 - a[0])


def mmd_of(z, phi):
    """For a kernel given as a function: its mean over the sphere by quadrature."""
    u, w = marginal(z.shape[1])
    bias = (phi(u) * w).sum()
    return (phi(cosines(z)).mean() - bias) / (1 - bias)


def ksd(z, a):
    """By the spectrum of the Stein kernel: degree l times its eigenvalue."""
    d = z.shape[1]
    b = [eigenvalue(l, d) * x for l, x in enumerate(a)]
    return series(cosines(z), d, b).mean() / math.fsum(b)


def u_statistic(z, a):
    """MMD without the pairs of a row with itself."""
    n, d = z.shape
    psi = (series(cosines(z), d, a) - a[0]) / (1 - a[0])
    return (psi.sum() - n) / (n * (n - 1))


def kl(z, a):
    n, d = z.shape
    phi = series(cosines(z), d, a)
    others = (phi * (1 - torch.eye(n, dtype=z.dtype))).sum(1) / (n - 1)
    area = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)
    return 1 + others.log().mean() / max(-area, -math.log(a[0]))


# ---- sliced losses -------------------------------------------------------------------------------


def philox(seed, stream, step, sample, block):
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw (SC 2011)."""
    mask = 2**32 - 1
    key = [seed & mask, seed >> 32]
    c = [block, sample & mask, step, (stream << 24 | sample >> 32) & mask]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ key[0], q & mask, (p >> 32) ^ c[3] ^ key[1], p & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c


def direction(seed, step, sample, d):
    out = []
    for block in range((d + 1) // 2):
        w = philox(seed, 1, step, sample, block)
        u = [(((w[2 * k] << 32 | w[2 * k + 1]) >> 11) + 0.5) / 2**53 for k in range(2)]
        radius = math.sqrt(-2 * math.log(u[0]))
        out += [radius * math.cos(2 * math.pi * u[1]), radius * math.sin(2 * math.pi * u[1])]
    x = torch.tensor(out[:d], dtype=torch.float64)
    return x / x.norm()


def epps_pulley(u, t, weights, target):
    """Of projections u [slices, n]: weighted squares of the difference of characteristic functions."""
    angle = u[..., None] * t
    real, imaginary = torch.cos(angle).mean(1) - target, torch.sin(angle).mean(1)
    return ((real**2 + imaginary**2) * weights).sum(-1).mean()


def knots(low, high, count):
    t = torch.linspace(low, high, count, dtype=torch.float64)
    weights = torch.full_like(t, (high - low) / (count - 1)) * torch.exp(-t * t / 2)
    weights[0] /= 2
    weights[-1] /= 2
    return t, weights


def susreg(z, slices, step=0, seed=0):
    n, d = z.shape
    t, weights = knots(-5, 5, 17)
    weights = weights / math.sqrt(2 * math.pi)
    u, density = marginal(d)
    target = (torch.cos(t[:, None] * math.sqrt(d) * u) * density).sum(1)
    a = torch.stack([direction(seed, step, s, d) for s in range(slices)])
    collapse = (weights * (1 - target**2)).sum()
    return epps_pulley(math.sqrt(d) * a @ unit(z).T, t, weights, target) / collapse


def sigreg(z, slices, step=0, seed=0):
    n, d = z.shape
    t, weights = knots(0, 3, 17)  # of an even function: both sides
    a = torch.stack([direction(seed, step, s, d) for s in range(slices)])
    return n * epps_pulley(a @ z.T, t, 2 * weights, torch.exp(-t * t / 2))


# ---- the objective -------------------------------------------------------------------------------


def invariance(z, global_views, of_unit_rows=True):
    x = unit(z) if of_unit_rows else z
    centre = x[:global_views].mean(0)
    away = (x - centre) ** 2
    return away.sum(-1).mean() if of_unit_rows else away.mean()  # LeJEPA's code: over all elements


def objective(z, discrepancy, lam, gain, global_views, of_unit_rows=True):
    uniformity = sum(discrepancy(view) for view in z) / len(z)
    return (1 - lam) * invariance(z, global_views, of_unit_rows) + lam * gain * uniformity

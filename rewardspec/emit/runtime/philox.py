"""Random numbers as a pure function of key and counter: equal on every process."""


def philox(counter, key):
    """Four random 64-bit words from counter (four words) and key (two words): Philox 4x64-10 (Salmon et al., 2011)."""
    a, b, c, d = counter
    k, m = key
    most = 2**64 - 1
    for _ in range(10):
        x, y = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
        a, b, c, d = (y >> 64) ^ b ^ k, y & most, (x >> 64) ^ d ^ m, x & most
        k, m = (k + 0x9E3779B97F4A7C15) & most, (m + 0xBB67AE8584CAA73B) & most
    return a, b, c, d


def uniforms(count, seed, step, purpose, row=0):
    """`count` numbers from [0, 1), a pure function of the arguments."""
    seed, step = int(seed) % 2**64, int(step) % 2**64
    words = [w for block in range(-(-count // 4)) for w in philox((block, row, step, 0), (seed, purpose))]
    return [(w >> 11) * 2.0**-53 for w in words[:count]]

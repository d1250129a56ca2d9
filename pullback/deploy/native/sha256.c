/* SHA-256, as FIPS 180-4 has it. */
#include "instance.h"

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t word, int count)
{
    return word >> count | word << (32 - count);
}

/* One round; who calls it turns the names of the eight words round by one, so that none of them is moved. */
#define ROUND(a, b, c, d, e, f, g, h, word)                                                                    \
    do {                                                                                                       \
        h += (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + (word);                   \
        d += h;                                                                                                \
        h += (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));                   \
    } while (0)

static void digest_block(uint32_t state[8], const uint8_t block[64])
{
    uint32_t words[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5],
                        g = state[6], h = state[7];
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
                   block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t late = words[i - 2], early = words[i - 15];
        words[i] = words[i - 16] + (turned(early, 7) ^ turned(early, 18) ^ early >> 3) + words[i - 7] +
                   (turned(late, 17) ^ turned(late, 19) ^ late >> 10);
    }
    for (int i = 0; i < 64; i += 8) {
        const uint32_t *k = round_constants + i, *w = words + i;
        ROUND(a, b, c, d, e, f, g, h, k[0] + w[0]);
        ROUND(h, a, b, c, d, e, f, g, k[1] + w[1]);
        ROUND(g, h, a, b, c, d, e, f, k[2] + w[2]);
        ROUND(f, g, h, a, b, c, d, e, k[3] + w[3]);
        ROUND(e, f, g, h, a, b, c, d, k[4] + w[4]);
        ROUND(d, e, f, g, h, a, b, c, k[5] + w[5]);
        ROUND(c, d, e, f, g, h, a, b, k[6] + w[6]);
        ROUND(b, c, d, e, f, g, h, a, k[7] + w[7]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void pb_sha256_begin(pb_sha256 *digest)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(digest->state, start, sizeof start);
    digest->length = 0;
}

void pb_sha256_add(pb_sha256 *digest, const void *bytes, size_t count)
{
    const uint8_t *next = bytes;
    size_t held = digest->length % 64;
    digest->length += count;
    if (held > 0) {
        size_t some = count < 64 - held ? count : 64 - held;
        memcpy(digest->block + held, next, some);
        next += some;
        count -= some;
        if (held + some < 64)
            return;
        digest_block(digest->state, digest->block);
    }
    for (; count >= 64; next += 64, count -= 64)
        digest_block(digest->state, next);
    if (count > 0)
        memcpy(digest->block, next, count);
}

void pb_sha256_end(pb_sha256 *digest, uint8_t bytes[32])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = digest->length * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    pb_sha256_add(digest, padding, 1 + (119 - digest->length % 64) % 64);
    pb_sha256_add(digest, length, sizeof length);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(digest->state[i / 4] >> (24 - 8 * (i % 4)));
}

void pb_sha256_end_text(pb_sha256 *digest, char hexadecimal[65])
{
    uint8_t bytes[32];
    pb_sha256_end(digest, bytes);
    for (int i = 0; i < 64; i++)
        hexadecimal[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    hexadecimal[64] = '\0';
}

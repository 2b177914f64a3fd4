#include "core/checksum.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are taken as they lie in memory");

enum { BLOCK = 32 };

/* The constants of the specification, with its numbers. */
static const uint64_t PRIME1 = 0x9e3779b185ebca87, PRIME2 = 0xc2b2ae3d27d4eb4f,
                      PRIME3 = 0x165667b19e3779f9, PRIME4 = 0x85ebca77c2b2ae63,
                      PRIME5 = 0x27d4eb2f165667c5;

static uint64_t rotate(uint64_t word, int bits) {
    return word << bits | word >> (64 - bits);
}

/* The specification's "round". */
static uint64_t mix(uint64_t lane, uint64_t word) {
    return rotate(lane + word * PRIME2, 31) * PRIME1;
}

/* Four lanes, because one would wait for its multiplications at every word. */
static void mix_block(uint64_t lane[4], const uint8_t *block) {
    uint64_t word[4];
    memcpy(word, block, sizeof word);
    for (int k = 0; k < 4; k++) lane[k] = mix(lane[k], word[k]);
}

void zonal__checksum_init(zonal__checksum *checksum) {
    *checksum = (zonal__checksum){.lane = {PRIME1 + PRIME2, PRIME2, 0, 0 - PRIME1}};
}

void zonal__checksum_add(zonal__checksum *checksum, const void *bytes, size_t n) {
    const uint8_t *at = bytes;
    uint64_t lane[4];
    size_t held = checksum->count % BLOCK;
    checksum->count += n;
    if (held > 0) {
        size_t taken = n < BLOCK - held ? n : BLOCK - held;
        if (taken > 0) memcpy(checksum->rest + held, at, taken);
        if (held + taken < BLOCK) return;
        mix_block(checksum->lane, checksum->rest);
        at += taken;
        n -= taken;
    }
    memcpy(lane, checksum->lane, sizeof lane); /* in registers: bytes could alias the struct */
    for (; n >= BLOCK; at += BLOCK, n -= BLOCK) mix_block(lane, at);
    memcpy(checksum->lane, lane, sizeof lane);
    if (n > 0) memcpy(checksum->rest, at, n);
}

static uint64_t merge_lanes(const uint64_t lane[4]) {
    uint64_t sum =
        rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
    for (int k = 0; k < 4; k++) sum = (sum ^ mix(0, lane[k])) * PRIME1 + PRIME4;
    return sum;
}

/* The n bytes that fill no block: by eights, then a four, then one by one. */
static uint64_t add_rest(uint64_t sum, const uint8_t *at, size_t n) {
    for (; n >= 8; at += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        sum = rotate(sum ^ mix(0, word), 27) * PRIME1 + PRIME4;
    }
    if (n >= 4) {
        uint32_t word;
        memcpy(&word, at, sizeof word);
        sum = rotate(sum ^ word * PRIME1, 23) * PRIME2 + PRIME3;
        at += 4;
        n -= 4;
    }
    for (; n > 0; at++, n--) sum = rotate(sum ^ *at * PRIME5, 11) * PRIME1;
    return sum;
}

/* Every bit of the sum reaches every bit of the result. */
static uint64_t spread_bits(uint64_t sum) {
    sum = (sum ^ sum >> 33) * PRIME2;
    sum = (sum ^ sum >> 29) * PRIME3;
    return sum ^ sum >> 32;
}

uint64_t zonal__checksum_value(const zonal__checksum *checksum) {
    uint64_t sum = checksum->count < BLOCK ? PRIME5 : merge_lanes(checksum->lane);
    return spread_bits(
        add_rest(sum + checksum->count, checksum->rest, (size_t)(checksum->count % BLOCK)));
}

uint64_t zonal__checksum_of(const void *bytes, size_t n) {
    zonal__checksum checksum;
    zonal__checksum_init(&checksum);
    zonal__checksum_add(&checksum, bytes, n);
    return zonal__checksum_value(&checksum);
}

/* Four bits at a time: table[k] is the remainder of the four bits k. */
uint32_t zonal__crc32c(const void *bytes, size_t n) {
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *at = bytes;
    uint32_t sum = ~(uint32_t)0;
    for (size_t i = 0; i < n; i++) {
        sum ^= at[i];
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }
    return ~sum;
}

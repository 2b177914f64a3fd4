/*
 * A checksum of 64 bits against damage to files: fast, and no guard against malice.
 *
 * With M = 0x9e3779b97f4a7c15, arithmetic modulo 2^64 and "turn" a rotation by 29 bits to the left:
 * the bytes, filled up with zeros to a multiple of 32, are little-endian u64 words w[0], w[1], ...;
 * word i goes to lane i mod 4 by lane = turn((lane ^ w[i]) M), lane k starting from (k + 1) M; at
 * last sum = the number of bytes, then sum = turn((sum ^ lane k) M) for k = 0 to 3, and the
 * checksum is sum ^ (sum >> 32). Each step can be undone, so damage within one word is always
 * found, and other damage with probability 1 - 2^-64 or thereabouts.
 *
 * Files depend on it: it must never change.
 */
#ifndef ZONAL_CORE_CHECKSUM_H
#define ZONAL_CORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t zonal__checksum_of(const void *bytes, size_t n);

/* The same for bytes that come piece by piece; the pieces' sizes do not matter. */
typedef struct zonal__checksum {
    uint64_t lane[4];
    uint64_t count;   /* bytes so far */
    uint8_t rest[32]; /* the last count mod 32 of them, which fill no block yet */
} zonal__checksum;

void zonal__checksum_init(zonal__checksum *checksum);
void zonal__checksum_add(zonal__checksum *checksum, const void *bytes, size_t n);
uint64_t zonal__checksum_value(const zonal__checksum *checksum); /* more may be added after */

/* CRC-32C (Castagnoli), as in RFC 3720, section 12.1 and appendix B.4: the polynomial 0x1edc6f41,
 * bits from the lowest on, the remainder begun with and taken in ones. It is what other programs'
 * formats have; our own files have the checksum above, which is faster. */
uint32_t zonal__crc32c(const void *bytes, size_t n);

#endif

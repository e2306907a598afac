// SPDX-License-Identifier: Apache-2.0
/* The limiter's program: finds the link of each packet of a network card, and admits or refuses it.
 *
 *   clsact ingress ─▶ from_user ┐  what a link admits gets the link's class as its priority; the next filter (`admitted`)
 *   clsact egress  ─▶ to_user   ┘  redirects that to the IFB of its direction, where HTB paces it
 *
 * Each direction of a link (a lane) has a virtual queue (virtual scheduling, ITU-T I.371) here, in front, so that nothing
 * that was admitted is dropped behind, and each fragment has the verdict and the link of its own datagram. Comments name
 * the property that a line holds:
 *   limit    any frames from any number of processors: in a time T no more than limit * T + room + one largest datagram
 *   count    counters are what passed, to the byte
 *   parsing  what carries a link's address and cannot be read to its end is refused, never nobody's
 *   claim    a packet costs the bytes that arrived, whatever its headers say
 *   verdict  the first verdict on a datagram stands, and what contradicts it is refused
 *   harm     others, and the network's control traffic, have no less than without this program
 *   order    no packet of a link overtakes another one
 * program.py and lanes.py have the same layouts. Linux 5.12 or newer (atomic operations, memory of global functions).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OWN_MAJOR 0x51b0u           // of our HTB roots: no operator's root takes our priorities for its classes
#define FULL 65536u                 // a factor of 1
#define COST_SHIFT 20               // of ns_per_byte
#define TRIES 8                     // to charge a bucket at which other processors are, too
#define GUARD_NS 100000000ull       // in which a busy processor hands on what HTB has sent
#define WAYS 3                      // slots in which a datagram may be
#define SETS 16                     // of them; an entry of the map fits into 2 kB
#define TICKS(seconds) ((seconds) * 1000000000ull >> 14)  // of slots
#define SLOT_TICKS TICKS(68)        // longer than any host keeps an incomplete datagram
#define PLAIN_TICKS TICKS(4)        // shorter than any host keeps one,
#define PLAIN_DISTANCE 64u          // IPv4: and among no more fragments of its sender (net.ipv4.ipfrag_max_dist)
#define PLAIN_HOPS 16               // more than are behind us
#define EARLIER_TICKS TICKS(1)      // by which a slot goes earlier of which nobody else has any use
#define MARK_BITS 18
#define MARK_TICKS 16               // of 4.3 s: as long as a slot
#define NOBODYS 0xffffu             // owner of a datagram: a lane, no link,
#define UNPAID 0xfffeu              // not known yet (no first fragment), or
#define SEVERAL 0xfffdu
#define UNSEEN_BYTES 90000ull       // one of the largest datagrams may come last fragment first
#define UNSEEN_NS_PER_BYTE 1000000ull  // 1 kB/s: what never gets its first fragment is of no use to anybody
#define UNSEEN_OVERHEAD 448u        // bytes that a fragment costs the host's memory beside its own
#define CONTROL_BYTES 16000ull      // the network's control traffic, while unmatched traffic is limited
#define CONTROL_NS_PER_BYTE 31250ull  // 256 kbit/s
#define MAX_HEADERS 24
#define MAX_TAGS 8
#define SCION_BFD 203               // next header in the common header, which follows the UDP header

enum { WITH_REMOTE_PORT = 1, WITH_LOCAL_ADDRESS = 2, WITH_LOCAL_PORT = 4, KINDS = 8, KINDS_WITH_PORTS = 0xfa,
       KINDS_WITH_REMOTE_PORT = 0xaa };
enum { BLOCKED = 1, OBSERVED = 2 };                     // flags of a lane
enum { NOBODY, STRAIGHT, ADMITTED, REFUSED };           // verdicts; STRAIGHT: past the IFB
enum { FREE, UNSEEN, OF_NOBODY, ACCEPTED, DROPPED };    // states of a slot; UNSEEN: no first fragment yet
enum { READ_ALL, READ_NOBODY, READ_ODD, READ_ON };  // ODD: no sound host sends it, and nothing tells whose it is

struct address { __u32 word[4], ifindex; };  // IPv4 as ::ffff:a.b.c.d; ifindex of link-local ones, else 0
struct key { struct address remote; __u32 local[4]; __u16 remote_port, local_port; } __attribute__((aligned(8)));

struct lane {
    __u64 ns_per_byte;   // written by user space, down to `segment`
    __u64 room_ns;       // how long the virtual queue may be
    __u64 early_ns;      // from here on a few are refused early, at most 1 in 8: TCP flows share more fairly
    __u64 largest_ns;    // of the largest datagram: HTB's leaf has room for two more than the virtual queue
    __u64 beat_room_ns;  // of the bucket of heartbeats
    __u32 class_id, flags;
    __u64 rate_kbit;     // of use to user space alone, like `segment`, which names the life of these counters
    __u64 segment;       // 0: nobody's
    __u64 empty_at;      // when the virtual queue will be empty, monotonic; from here on written by this program, and
                         // by user space with another limit: what waits then takes as much longer as that is lower
    __u64 beat_at;
    __u64 passed_bytes, passed_packets, refused_bytes, refused_packets;  // an observed link's refused ones passed, too
    __u64 beat_bytes, beat_packets;  // among those that passed
    __u64 queued_until;  // until then a packet may still be in HTB
};

/* `bytes`, `packets`: what passed unpaid before the first fragment; then `number` is the side's when the latest one came,
 * and `packets` is 0 if none passed. `next`: where the next one begins while they come in order, else 0; `at`: when the
 * latest one came, in order the first. `life`: of the lane. `lost`: the mark of datagrams that have none. */
struct slot { __u32 datagram, at; union { __u32 bytes, number; }; __u16 next, lane, life; __u8 packets, state; };
struct side { __u64 unseen_at; __u32 number, lost; struct slot slots[SETS][WAYS]; };
struct fragments { struct bpf_spin_lock lock; struct side side[2]; };  // harm: strangers send from a user, never to him

#define HASH(name, from, to) \
    struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 16384); __uint(map_flags, BPF_F_NO_PREALLOC); \
             __type(key, from); __type(value, to); } name SEC(".maps")
HASH(links, struct key, __u32);                       // the lane to the user; the next one is from the user
HASH(fragments, struct address, struct fragments);    // of each address that has a link
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 16384); __uint(map_flags, BPF_F_MMAPABLE);
         __type(key, __u32); __type(value, struct lane); } lanes SEC(".maps");

volatile struct {
    __u32 factor[2];   // multiplies each charge of a direction, while links share a cap of the attachment point
    __u32 unmatched;   // 1 + the lane to the users of what no link has; 0: that is not limited
    __u32 seed;        // of the slots
    __u64 known[1024]; // the bit of each address that has a link: who has none is nobody's, without a look-up
    __u32 ifb;         // interface number of the IFB to the users
    __u8 kinds;        // of keys that any address has, as bits
    __u64 marks[1 << MARK_BITS];  // of datagrams of which bytes passed, and that have no slot any more
} settings;

struct packet {
    struct key key;  // with all that is known of it
    __u8 protocol, has_ports, is_fragment, is_first, is_last, is_beat, is_control, is_exempt, is_plain, has_ah;
    __u8 is_ipv4, is_there, has_lane;  // of a fragment: Linux surely takes it; it is a first one, and somebody pays
    __u32 identification, from_user;
    __u32 bytes, packets;            // as HTB counts them
    __u32 seen_bytes, seen_packets;  // of its datagram, which passed before the first fragment
    __u32 offset, payload;           // of a fragment in its datagram
    __u32 lane, class_id, way;
    __u32 life;                      // of the lane, of a fragment
    __u32 home;                      // a number of the remote address
    __u32 ip, ip_bytes, at, from;    // where the IP packet begins, its length, the next header; offsets are from `from`
    volatile __u64 now, rest, cost, debt, largest, longest;  // of `admit_to`: its own stack would wait (see CLEAR)
};

#define READ_BYTES(offset, to, bytes) bpf_skb_load_bytes_relative(skb, offset, to, bytes, p->from)
#define READ(offset, to) READ_BYTES(offset, to, sizeof(*(to)))
#define COPY(to, of) __builtin_memcpy(to, of, 16)
/* Nothing is there, so that the kernel clears the memory. Without CAP_PERFMON each store to a part of the stack that is
 * not in use yet waits for all before it (5 ns, against speculative store bypass); what a helper stores does not. */
#define CLEAR(what) bpf_skb_load_bytes(skb, ~0u, &(what), sizeof(what))

#define UNROLLED _Pragma("clang loop unroll(full)")  // without CAP_PERFMON a wrong guess never ends a loop
#define ROTATED(word, bits) ((word) << (bits) | (word) >> (32 - (bits)))
#define IS_TAG(protocol) ((protocol) == bpf_htons(ETH_P_8021Q) || (protocol) == bpf_htons(ETH_P_8021AD))

/* The fast way of most packets: without a tag, of an address that has no link. */
static __always_inline int is_nobodys(struct __sk_buff *skb, __u32 from_user)
{
    int is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP), at = is_ipv4 ? (from_user ? 12 : 16) : from_user ? 8 : 24;
    __u32 word[4], bit;

    if (settings.unmatched || IS_TAG(skb->protocol))
        return 0;
    if (!is_ipv4 && skb->protocol != bpf_htons(ETH_P_IPV6))
        return 1;
    if (bpf_skb_load_bytes_relative(skb, at, word, is_ipv4 ? 4 : 16, BPF_HDR_START_NET) < 0)
        return 1;
    bit = is_ipv4 ? word[0] ^ ROTATED(bpf_htonl(0xffff), 7)
                  : word[3] ^ ROTATED(word[2], 7) ^ ROTATED(word[1], 14) ^ ROTATED(word[0], 21);
    bit = bit * 0x9e3779b1u >> 16;
    return !(settings.known[bit >> 6 & 1023] >> (bit & 63) & 1);
}

/* The protocol, and where its header begins: behind VLAN tags of id 0, which the kernel takes for none, however many.
 * -1: nobody's, -2 (parsing): more of them than anybody needs. */
static __always_inline int network_header(struct __sk_buff *skb, struct packet *p)
{
    struct { __be16 tci, protocol; } tag;
    __be16 protocol = skb->protocol;
    p->ip = 0, p->from = BPF_HDR_START_NET;
    if (skb->vlan_present && (skb->vlan_tci & 0xfff))
        return -1;  // of a VLAN, whose device has hooks of its own
    if (!IS_TAG(protocol))
        return protocol;
    p->ip = ETH_HLEN, p->from = BPF_HDR_START_MAC;
    UNROLLED for (int i = 0; i < MAX_TAGS && IS_TAG(protocol); i++, p->ip += sizeof(tag)) {
        if (READ(p->ip, &tag) < 0 || tag.tci & bpf_htons(0xfff))
            return -1;
        protocol = tag.protocol;
    }
    return IS_TAG(protocol) ? -2 : protocol;
}

/* Functions that are not static are read by the verifier once, and not on every path to them: 0.1 s instead of 2.7, and
 * without CAP_PERFMON, when it follows wrong guesses of a processor too, at all. For that, `p` may be NULL to its eyes.
 *
 * Ports, and whether it is a heartbeat. It begins at `at`. */
__noinline int read_transport(struct __sk_buff *skb, struct packet *p)
{
    struct { __u16 source, destination; __be16 length; __u8 rest[6], mark; } head;  // TCP: length, SCION: next header
    __u8 type;

    if (!p)
        return READ_NOBODY;
    if (p->is_fragment && p->at - p->ip + 8 > p->ip_bytes)
        return READ_ODD;  // parsing: what looks like ports is not part of the packet
    __u32 at = p->at, link_layer = p->from == BPF_HDR_START_NET ? skb->len - p->ip_bytes : 0;
    if (p->is_exempt)  // neighbours and routers of this network: hops are 255 (RFC 4861), and no fragments (RFC 6980)
        p->is_exempt = p->protocol == IPPROTO_ICMPV6 && !p->is_fragment && READ(at, &type) == 0 &&
                       type >= 133 && type <= 137;
    if (p->protocol != IPPROTO_UDP && p->protocol != IPPROTO_TCP)
        return READ_ALL;
    if (READ_BYTES(at, &head, 13) < 0 && READ_BYTES(at, &head, 6) < 0)
        return READ_ODD;
    p->has_ports = 1;
    p->key.remote_port = p->from_user ? head.source : head.destination;
    p->key.local_port = p->from_user ? head.destination : head.source;
    if (skb->gso_size) {  // each segment gets the headers again, and HTB charges for them (qdisc_pkt_len_init)
        __u32 headers = at + (link_layer <= 64 ? link_layer : ETH_HLEN);
        headers += p->protocol == IPPROTO_TCP ? (head.mark >> 4) * 4 : 8;
        p->packets = skb->gso_segs ?: skb->len > headers ? (skb->len - headers - 1) / skb->gso_size + 1 : 1;
        p->bytes += (p->packets - 1) * headers;
    } else if (p->protocol == IPPROTO_UDP && !p->is_fragment) {
        p->is_beat = head.mark == SCION_BFD;
    }
    return READ_ALL;
}

/* verdict: what a host would not take for a fragment decides about none. Its payload begins at `at`. */
static __always_inline int is_sound(struct __sk_buff *skb, struct packet *p)
{
    __u8 byte;
    p->payload = p->ip_bytes - (p->at - p->ip);
    return p->payload - 1 < 65535 && p->offset + p->payload <= 65535 && (p->is_last || !(p->payload & 7)) &&
           READ(p->at + p->payload - 1, &byte) == 0;
}

__noinline int read_ipv4(struct __sk_buff *skb, struct packet *p)
{
    struct iphdr ip;
    if (!p || READ(p->ip, &ip) < 0 || ip.version != 4 || ip.ihl < 5)
        return READ_NOBODY;  // the kernel drops it
    p->key.remote.word[2] = p->key.local[2] = bpf_htonl(0xffff);
    p->key.remote.word[3] = p->from_user ? ip.saddr : ip.daddr;
    p->key.local[3] = p->from_user ? ip.daddr : ip.saddr;
    p->is_ipv4 = 1;
    p->protocol = ip.protocol;
    p->is_fragment = (ip.frag_off & bpf_htons(0x3fff)) != 0;
    p->is_first = (ip.frag_off & bpf_htons(0x1fff)) == 0;
    p->is_last = (ip.frag_off & bpf_htons(0x2000)) == 0;
    p->offset = (bpf_ntohs(ip.frag_off) & 0x1fff) * 8;
    p->identification = (__u32)ip.protocol << 16 | ip.id;
    p->ip_bytes = bpf_ntohs(ip.tot_len);
    p->at = p->ip + ip.ihl * 4;
    if (p->is_fragment) {
        __u32 sum = bpf_csum_diff(0, 0, (void *)&ip, sizeof(ip), 0);
        sum = (sum & 0xffff) + (sum >> 16);
        p->is_plain = ip.ihl == 5 && ip.ttl >= PLAIN_HOPS && (sum & 0xffff) + (sum >> 16) == 0xffff;
        if (!is_sound(skb, p))
            return READ_ODD;
    }
    return p->is_first ? read_transport(skb, p) : READ_ALL;
}

/* What begins at `at`, an extension header or what follows them; `protocol` says which. */
__noinline int read_header(struct __sk_buff *skb, struct packet *p)
{
    struct { __u8 next, length; __be16 offset; __be32 id; } header;  // the last two of a fragment header
    __u8 kind = p ? p->protocol : 0;
    if (!p || (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING && kind != IPPROTO_DSTOPTS && kind != IPPROTO_AH &&
               kind != IPPROTO_FRAGMENT))
        return read_transport(skb, p);
    if (READ(p->at, &header) < 0)
        return READ_ODD;  // RFC 8200: the first fragment has all of them
    p->at += kind == IPPROTO_FRAGMENT ? 8 : kind == IPPROTO_AH ? header.length * 4 + 8 : header.length * 8 + 8;
    p->protocol = header.next;
    p->has_ah |= kind == IPPROTO_AH;
    if (kind == IPPROTO_FRAGMENT && header.offset & bpf_htons(0xfff9)) {  // else atomic: nothing to put together
        p->is_fragment = 1;
        p->is_last = !(header.offset & bpf_htons(1));
        p->offset = bpf_ntohs(header.offset) & 0xfff8;
        if (p->has_ah || !is_sound(skb, p))  // parsing: who cannot verify AH has a whole packet of that protocol
            return READ_ODD;
        p->identification = header.id;  // with the addresses; not the next header, which may differ (RFC 8200)
        if (header.offset & bpf_htons(0xfff8)) {
            p->is_first = p->is_exempt = 0;
            return READ_ALL;
        }
    }
    return READ_ON;
}

__noinline int read_ipv6(struct __sk_buff *skb, struct packet *p)
{
    struct ipv6hdr ip;
    if (!p || READ(p->ip, &ip) < 0 || ip.version != 6)
        return READ_NOBODY;
    COPY(p->key.remote.word, p->from_user ? &ip.saddr : &ip.daddr);
    COPY(p->key.local, p->from_user ? &ip.daddr : &ip.saddr);
    if ((p->key.remote.word[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
        p->key.remote.ifindex = skb->ifindex;
    p->is_first = 1;
    p->is_exempt = ip.hop_limit == 255;
    p->ip_bytes = bpf_ntohs(ip.payload_len) + sizeof(ip);
    p->at = p->ip + sizeof(ip);
    p->protocol = ip.nexthdr;
    UNROLLED for (int i = 0; i <= MAX_HEADERS; i++) {
        int read = read_header(skb, p);
        if (read != READ_ON) {  // Linux wants all of a TCP header (RFC 8200)
            p->is_plain = ip.nexthdr == IPPROTO_FRAGMENT && p->at == p->ip + sizeof(ip) + 8 &&
                          ip.hop_limit >= PLAIN_HOPS && (p->protocol == IPPROTO_UDP || p->payload >= 20);
            return read;
        }
    }
    return READ_ODD;
}

/* Sets the packet's lane to that of the link whose key says most about it. */
__noinline int find(struct __sk_buff *skb, struct packet *p)
{
    __u32 kinds = settings.kinds;
    struct key key;
    if (!p)
        return 0;
    if (!p->has_ports || p->protocol != IPPROTO_UDP)  // a test may be TCP
        kinds &= p->has_ports ? ~KINDS_WITH_REMOTE_PORT : ~KINDS_WITH_PORTS;
    UNROLLED for (__u32 order = 0x02461357, i = 0; i < KINDS; i++, order >>= 4) {
        __u32 kind = order & 7, *lane;
        if (!(kinds >> kind & 1))
            continue;
        CLEAR(key);
        key = p->key;
        if (!(kind & WITH_LOCAL_ADDRESS))
            __builtin_memset(key.local, 0, sizeof(key.local));
        if (!(kind & WITH_REMOTE_PORT))
            key.remote_port = 0;
        if (!(kind & WITH_LOCAL_PORT))
            key.local_port = 0;
        lane = bpf_map_lookup_elem(&links, &key);
        if (lane) {
            p->lane = *lane + p->from_user;
            return 1;
        }
    }
    return 0;
}

#define ADD(counter, value) __sync_fetch_and_add(&(counter), value)

/* limit, claim: the one place where a bucket is charged, in one piece whatever other processors do. It will be empty at
 * `*empty_at`, and is never longer than `most`: what would make it longer is refused. */
static __always_inline int charge(__u64 *empty_at, __u64 now, __u64 cost, __u64 most)
{
    UNROLLED for (int i = 0; i < TRIES; i++) {
        __u64 was = *(volatile __u64 *)empty_at, from = was > now ? was : now;
        if (from - now + cost > most)
            return 0;
        if (__sync_val_compare_and_swap(empty_at, was, from + cost) == was)
            return 1;
    }
    return 0;
}

/* Where no lock is held: with registers of its own, so that its caller's are not stored (see CLEAR). */
__noinline int charge_once(__u64 *empty_at, __u64 now, __u64 cost, __u64 most)
{
    return empty_at ? charge(empty_at, now, cost, most) : 0;
}

static __always_inline void raise_to(__u64 *at, __u64 until)
{
    UNROLLED for (int i = 0; i < TRIES; i++) {
        __u64 was = *(volatile __u64 *)at;
        if (was >= until)
            return;
        if (__sync_val_compare_and_swap(at, was, until) == was)
            return;
    }
}

#define LEAF_NS(lane) (GUARD_NS + (lane)->room_ns + 2 * (lane)->largest_ns)  // a full leaf, and a busy processor

/* order: a packet that need not wait goes straight on, if none of its lane can still be in HTB. A packet that waits may
 * stay there as long as a full leaf takes, one that does not wait as long as a busy processor takes. */
static __always_inline int must_queue(struct lane *lane, __u64 now, __u64 rest, __u64 cost)
{
    __u64 was = *(volatile __u64 *)&lane->queued_until, until = now + LEAF_NS(lane);
    if (!rest && now >= was)
        return 0;
    if (!rest)
        until = now + GUARD_NS > was + cost ? now + GUARD_NS : was + cost;
    raise_to(&lane->queued_until, until);
    return 1;
}

/* Whether the lane has room for the packet; `datagram`: what was decided about the datagram whose fragment it is. */
__noinline int admit_to(struct lane *lane, struct packet *p, int datagram)
{
    __u64 was, factor, most;
    if (!lane || !p)
        return REFUSED;
    p->class_id = lane->class_id;
    factor = settings.factor[p->from_user & 1];
    p->cost = (p->bytes * lane->ns_per_byte >> COST_SHIFT) * factor / FULL;
    p->debt = (p->seen_bytes * lane->ns_per_byte >> COST_SHIFT) * factor / FULL;
    p->largest = lane->largest_ns * factor / FULL;
    p->longest = lane->room_ns + 2 * p->largest + lane->beat_room_ns;
    if (p->seen_packets) {
        ADD(lane->passed_bytes, p->seen_bytes);
        ADD(lane->passed_packets, p->seen_packets);
    }
    p->now = bpf_ktime_get_ns();
    was = *(volatile __u64 *)&lane->empty_at;
    if (was > p->now + p->longest && was > lane->queued_until) {  // the cap's factor has fallen
        __sync_val_compare_and_swap(&lane->empty_at, was, p->now + lane->early_ns);
        was = p->now + lane->early_ns;
    }
    p->rest = was > p->now ? was - p->now : 0;
    if (p->is_control)
        p->is_beat = charge_once(&lane->beat_at, p->now, p->bytes * CONTROL_NS_PER_BYTE,
                                 CONTROL_BYTES * CONTROL_NS_PER_BYTE);
    else if (p->is_beat)
        p->is_beat = !(lane->flags & BLOCKED) && charge_once(&lane->beat_at, p->now, p->cost, lane->beat_room_ns);
    most = lane->room_ns + p->largest;  // limit: room and one largest datagram
    if (p->is_beat && p->rest > most && lane->queued_until > p->now + LEAF_NS(lane))
        most = p->rest + p->cost;  // harm: the limit was lowered, and what waits takes longer than a queue may
    if (!p->is_beat) {
        most -= p->largest / 64;  // heartbeats have a place also behind a largest datagram
        if (lane->flags & BLOCKED || datagram == DROPPED)
            goto refused;
        if (datagram != ACCEPTED && p->rest > lane->early_ns) {
            __u64 chance = bpf_get_prandom_u32();
            if (p->rest > lane->room_ns ||
                chance < ((p->rest - lane->early_ns) << 29) / (lane->room_ns - lane->early_ns + 1))
                goto refused;
        }
    }
    if (!charge_once(&lane->empty_at, p->now, p->cost + p->debt, most))
        goto refused;
    ADD(lane->passed_bytes, p->bytes);
    ADD(lane->passed_packets, p->packets);
    if (p->is_beat) {
        ADD(lane->beat_bytes, p->bytes);
        ADD(lane->beat_packets, p->packets);
    }
    if (p->is_beat || lane->flags & OBSERVED)
        return STRAIGHT;
    return must_queue(lane, p->now, p->rest, p->cost) ? ADMITTED : STRAIGHT;
refused:
    if (p->debt)  // limit: what passed before the first fragment is owed all the same
        charge_once(&lane->empty_at, p->now, p->debt, p->longest);
    ADD(lane->refused_bytes, p->bytes);
    ADD(lane->refused_packets, p->packets);
    if (!(lane->flags & OBSERVED))
        return REFUSED;
    ADD(lane->passed_bytes, p->bytes);  // count: of an observed link it passes
    ADD(lane->passed_packets, p->packets);
    return STRAIGHT;
}

static __always_inline int admit(struct packet *p, int datagram)
{
    __u32 number = p->lane;
    asm volatile("" : "+r"(number));  // so that the key is on the stack: Linux 6.1 looks for it there
    struct lane *lane = bpf_map_lookup_elem(&lanes, &number);
    return lane ? admit_to(lane, p, datagram) : REFUSED;
}

static __always_inline __u64 mixed(__u64 a, __u32 b, __u32 c)
{
    a = (a ^ ((__u64)b << 32 | c)) * 0x9e3779b97f4a7c15ull;
    return a ^ a >> 29;
}

/* limit, count, verdict: bytes of a datagram passed as its owner's, and it has no slot any more. Until no host can have
 * them no other owner's fragment passes; a nobody's datagram needs no more than that. harm: who fills both cells that a
 * datagram may have takes nothing from anybody else, but that `lost` is then the mark of all datagrams of its address. */
#define MARK(datagram, tick, owner) ((__u64)(datagram) << 32 | (__u16)(tick) << 16 | (owner))
#define IS_RECENT(mark, tick) ((mark) && (__u16)((tick) - ((mark) >> 16)) < MARK_TICKS)
#define IS_OF(mark, datagram, tick) (IS_RECENT(mark, tick) && (mark) >> 32 == (datagram))
#define OWNER(mark) ((__u16)(mark))

/* Where the mark of a datagram is, or else might be. harm: of 32 bits alone many datagrams have the same; with `home`, a
 * number of the address, only datagrams of one address share a mark. */
static __always_inline __u32 cell_of(__u32 home, __u32 datagram, __u32 tick)
{
    __u32 place = home + datagram, one = place >> (32 - MARK_BITS), other = place * 0x9e3779b1u >> (32 - MARK_BITS);
    __u64 mark = settings.marks[one];
    if (!IS_RECENT(mark, tick))
        return IS_OF(settings.marks[other], datagram, tick) ? other : one;
    return mark >> 32 == datagram ? one : other;
}

static __always_inline void set_mark(struct side *side, __u32 home, __u32 datagram, __u32 tick, __u32 owner)
{
    volatile __u64 *cell = &settings.marks[cell_of(home, datagram, tick)];
    __u64 was = *cell, mark = MARK(datagram, tick, owner);
    if ((!IS_RECENT(was, tick) || was >> 32 == datagram) && __sync_val_compare_and_swap(cell, was, mark) == was)
        return;
    if (owner == UNPAID)
        owner = NOBODYS;
    side->lost = MARK(0, tick, IS_RECENT(side->lost, tick) && OWNER(side->lost) != owner ? SEVERAL : owner);
}

static __always_inline void give_away(struct side *side, __u32 home, struct slot *slot, __u32 unmatched, __u32 tick)
{
    __u32 owner = slot->state == OF_NOBODY || slot->lane == unmatched ? NOBODYS : slot->lane;
    if (slot->state == UNSEEN)
        owner = UNPAID;
    if (slot->state != FREE && slot->packets)
        set_mark(side, home, slot->datagram, tick, owner);
    slot->state = FREE;
}

#define UNSEEN_COST(bytes, packets) (((bytes) + (packets) * UNSEEN_OVERHEAD) * UNSEEN_NS_PER_BYTE)

/* claim: another link may have the number of a lane that is gone. */
static __always_inline __u32 life_of(__u32 number)
{
    asm volatile("" : "+r"(number));
    struct lane *lane = bpf_map_lookup_elem(&lanes, &number);
    return lane ? lane->segment & 0xffff : 0;
}

/* Of a first fragment: the link's lane, which then is the packet's, too; else nobody's, also if unmatched traffic pays. */
__noinline int owner_of(struct __sk_buff *skb, struct packet *p)
{
    if (!p)
        return NOBODYS;
    p->is_there = p->is_plain && (!p->from_user || skb->pkt_type == PACKET_HOST);
    __u32 owner = NOBODYS;
    p->has_lane = p->is_first && find(skb, p);
    if (p->has_lane) {
        owner = p->lane;
    } else {
        p->lane = settings.unmatched - 1 + p->from_user;
        p->has_lane = p->is_first && settings.unmatched;
    }
    if (p->has_lane)
        p->life = life_of(p->lane);
    return owner;
}

/* Only the first fragment has ports. Those that come before it pass within a bucket of their address, and are charged to
 * the link with the first one; where that is refused nothing can be put together.
 *
 * A datagram is in order while Linux surely has all of it, from 0 to `next`, and nothing else of that identification:
 * then its last fragment ends its life. What overlaps, comes twice, too late or not in order may end it sooner, without
 * a trace, and what Linux gets then can be completed by whoever comes first. So a nobody's datagram that is not in order
 * has a mark, whose price its address pays. */
__noinline int decide_fragment(struct __sk_buff *skb, struct packet *p)
{
    if (!p)
        return REFUSED;
    struct address key;
    CLEAR(key);
    key = p->key.remote;
    struct fragments *here = bpf_map_lookup_elem(&fragments, &key);
    if (!here)
        return NOBODY;
    if (!p->is_fragment || !p->payload)
        return REFUSED;  // parsing: it cannot be read
    long state = FREE, verdict = REFUSED, contradicts, is_in_order, is_whole = 0, had = 0;  // a spilled half is refused
    __u32 owner = owner_of(skb, p), unmatched = settings.unmatched - 1 + p->from_user;
    __u64 now = bpf_ktime_get_ns(), mix = mixed(settings.seed, p->key.remote.word[0], p->key.remote.word[1]), mark;
    __u32 datagram, ticks = now >> 14, tick = now >> 32, oldest = 0, way, cell;
    struct side *side = here->side;
    if (p->from_user) {
        side = &here->side[1];
        asm volatile("" : "+r"(side));
    }
    asm volatile("" : "+r"(side));  // without CAP_PERFMON no sum may point to the lock, not even on its way

    mix = mixed(mix, p->key.remote.word[2], p->key.remote.word[3]);
    p->home = mix >> 32;
    mix = mixed(mixed(mix, p->from_user, p->identification), p->key.local[0], p->key.local[1]);
    mix = mixed(mix, p->key.local[2], p->key.local[3]);
    datagram = mix;
    struct slot *first = side->slots[mix >> 60], *slot;

    bpf_spin_lock(&here->lock);
    side->number++;
    UNROLLED for (int i = 0; i < WAYS; i++) {
        struct slot *one = first + i;
        asm volatile("" : "+r"(one));  // nor may a sum differ by the way to it
        __u32 age = ticks - one->at + EARLIER_TICKS;  // limit: another processor may have looked at a later clock
        if (one->state == FREE || age >= SLOT_TICKS + EARLIER_TICKS) {
            one->state = FREE;
            age = ~0u - 1;
        } else if (one->datagram == datagram) {
            age = ~0u;
        } else {  // harm: who has many takes the slots of his own, and what is no link's does not take a link's
            if (one->state == ACCEPTED ? p->has_lane && one->lane == p->lane
                                       : one->state != OF_NOBODY || (p->is_first && !p->has_lane))
                age += EARLIER_TICKS;
            if (one->state != ACCEPTED && !p->has_lane)
                age += EARLIER_TICKS;
        }
        if (age >= oldest) {
            oldest = age;
            p->way = i;
        }
    }
    way = *(volatile __u32 *)&p->way;  // one state for the verifier, who does not know what is in memory
    if (way >= WAYS)
        goto unlock;
    slot = first + way;
    state = slot->datagram == datagram ? slot->state : FREE;
    cell = cell_of(p->home, datagram, tick);
    mark = settings.marks[cell];
    if (!IS_OF(mark, datagram, tick))
        mark = 0;
    if (state > UNSEEN)
        contradicts = p->is_first && (p->has_lane ? state != ACCEPTED || slot->lane != p->lane : state != OF_NOBODY);
    else if (mark)
        contradicts = OWNER(mark) != owner && (OWNER(mark) != UNPAID || owner != NOBODYS);
    else
        contradicts = IS_RECENT(side->lost, tick) && OWNER(side->lost) != owner;
    if (contradicts)
        goto unlock;  // verdict
    if (state <= UNSEEN && mark && OWNER(mark) == NOBODYS) {
        settings.marks[cell] = MARK(datagram, tick, NOBODYS);
        verdict = NOBODY;
        goto unlock;
    }
    if (p->is_first)
        is_in_order = p->is_there && state == FREE && !mark && !IS_RECENT(side->lost, tick);
    else
        is_in_order = p->is_there && state > UNSEEN && slot->next == p->offset &&
                      (__s32)(ticks - slot->at) < (__s32)PLAIN_TICKS &&
                      (!p->is_ipv4 || side->number - slot->number <= PLAIN_DISTANCE);
    if (p->is_first ? owner == NOBODYS && !p->is_there : state <= UNSEEN || (state == OF_NOBODY && !is_in_order)) {
        if ((state == UNSEEN && slot->packets == 255) ||
            !charge(&side->unseen_at, now, UNSEEN_COST(p->bytes, 1), UNSEEN_BYTES * UNSEEN_NS_PER_BYTE))
            goto unlock;
    }
    if (state == FREE) {
        give_away(side, p->home, slot, unmatched, tick);
        slot->datagram = datagram;
        slot->bytes = slot->packets = 0;
    }
    if (p->is_first || !is_in_order)
        slot->at = ticks;
    slot->next = is_in_order ? p->offset + p->payload : 0;
    if (!p->is_first && state <= UNSEEN) {
        verdict = STRAIGHT;
        slot->state = UNSEEN;
        slot->bytes += p->bytes;
        slot->packets++;
        goto unlock;
    }
    if (p->is_first) {
        had = slot->packets;  // whether something passed, should it be refused
        if (state == UNSEEN) {
            p->seen_bytes = slot->bytes;
            p->seen_packets = slot->packets;
        }
        slot->packets = 1;
        slot->lane = p->lane;
        slot->life = p->life;
        slot->state = p->has_lane ? ACCEPTED : OF_NOBODY;
    }
    state = slot->state;
    slot->number = side->number;
    is_whole = is_in_order && p->is_last;
    if (state == OF_NOBODY) {
        verdict = NOBODY;
        if (is_whole)
            slot->state = FREE;
        else if (!is_in_order)
            give_away(side, p->home, slot, unmatched, tick);
    } else {
        verdict = ADMITTED;
        p->lane = slot->lane;
        p->life = slot->life;
    }
unlock:
    bpf_spin_unlock(&here->lock);
    if (verdict == ADMITTED) {
        verdict = life_of(p->lane) == p->life ? admit(p, p->is_first ? FREE : state) : REFUSED;
        if (verdict == REFUSED || is_whole) {
            bpf_spin_lock(&here->lock);
            if (slot->datagram == datagram) {
                if (verdict == REFUSED && p->is_first)
                    slot->packets = had;
                slot->state = verdict != REFUSED || (is_whole && !slot->packets) ? FREE : DROPPED;
            }
            bpf_spin_unlock(&here->lock);
        }
    }
    if (p->seen_bytes && verdict != REFUSED)  // harm: a link has taken it over, or nobody's right for the price of a mark
        ADD(side->unseen_at, -UNSEEN_COST((__u64)p->seen_bytes, p->seen_packets - (owner == NOBODYS)));
    return verdict;
}

/* harm: what keeps the network itself alive. Neither a network's neighbours nor its routes have a link. */
static __always_inline int is_control(struct __sk_buff *skb, struct packet *p, int read)
{
    __u32 *to = p->from_user ? p->key.local : p->key.remote.word;
    __u16 here = bpf_ntohs(p->key.local_port), there = bpf_ntohs(p->key.remote_port);
    __u8 type = 0;

    if (read == READ_NOBODY)
        return 1;  // LACP, LLDP, EAPOL, spanning trees, IS-IS
    if (p->is_fragment || read != READ_ALL)
        return 0;
    if (to[2] == bpf_htonl(0xffff) && (to[3] & bpf_htonl(0xffffff00)) == bpf_htonl(0xe0000000))
        return 1;
    if ((to[0] & bpf_htonl(0xff0f0000)) == bpf_htonl(0xff020000))
        return 1;
    switch (p->protocol) {
    case IPPROTO_IGMP: case IPPROTO_PIM: case 88: case 89: case 112:  // EIGRP, OSPF, VRRP
        return 1;
    case IPPROTO_ICMP:
        return READ(p->at, &type) == 0 && (type == 3 || type == 4 || type == 5 || type == 11 || type == 12);
    case IPPROTO_ICMPV6:
        return READ(p->at, &type) == 0 && type >= 1 && type <= 4;
    case IPPROTO_TCP:
        return here == 179 || there == 179;  // BGP
    case IPPROTO_UDP:  // DHCP: a host must not lose its address
        return here == 67 || here == 68 || here == 546 || here == 547;
    }
    return 0;
}

static __always_inline int decide(struct __sk_buff *skb, struct packet *p)
{
    int protocol = network_header(skb, p), read = READ_NOBODY, verdict = NOBODY;

    if (protocol == -2)
        return REFUSED;
    if (protocol == bpf_htons(ETH_P_IP))
        read = read_ipv4(skb, p);
    else if (protocol == bpf_htons(ETH_P_IPV6))
        read = read_ipv6(skb, p);
    else
        p->is_exempt = protocol == bpf_htons(ETH_P_ARP) || protocol < 0;
    if (read == READ_ODD)
        p->payload = 0;
    if (read == READ_ODD || p->is_fragment)
        verdict = decide_fragment(skb, p);
    else if (read == READ_ALL && find(skb, p))
        return admit(p, FREE);
    if (verdict != NOBODY || !settings.unmatched || (p->is_exempt && read != READ_ODD))
        return verdict;
    p->lane = settings.unmatched - 1 + p->from_user;
    p->is_control = is_control(skb, p, read);
    p->is_beat = 0;
    return admit(p, FREE);
}

static __always_inline int limit(struct __sk_buff *skb, __u32 from_user)
{
    struct packet p;
    int verdict;

    if (!from_user && skb->ingress_ifindex && skb->ingress_ifindex == settings.ifb) {  // it comes back from there
        if (skb->priority >> 16 == OWN_MAJOR)
            skb->priority = skb->cb[4];
        return TC_ACT_UNSPEC;
    }
    if (skb->priority >> 16 == OWN_MAJOR)
        skb->priority = 0;  // it came from a user, and goes on to somebody
    if (is_nobodys(skb, from_user))
        return TC_ACT_UNSPEC;
    CLEAR(p);
    p.from_user = from_user, p.packets = 1;
    p.bytes = skb->len;
    verdict = decide(skb, &p);
    if (verdict == ADMITTED) {
        skb->cb[4] = skb->priority;
        skb->priority = p.class_id;
    }
    return verdict == REFUSED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc") int to_user(struct __sk_buff *skb) { return limit(skb, 0); }
SEC("tc") int from_user(struct __sk_buff *skb) { return limit(skb, 1); }

/* Not direct action: says whether the packet matches, and the filter's own action redirects it to the IFB. */
SEC("tc") int admitted(struct __sk_buff *skb) { return skb->priority >> 16 == OWN_MAJOR ? -1 : 0; }

char LICENSE[] SEC("license") = "Apache-2.0";

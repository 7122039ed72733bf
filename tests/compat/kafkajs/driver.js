// kafkajs, driven by JSON lines; compat_clients/driven.py says what they look like. Argument: the folder that holds node_modules.
'use strict'

const { createRequire } = require('node:module')
const { createInterface } = require('node:readline')
const path = require('node:path')

const installed = createRequire(path.join(process.argv[2], 'package.json'))
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, PartitionAssigners, logLevel } = installed('kafkajs')
const lz4 = installed('lz4js')

CompressionCodecs[CompressionTypes.Snappy] = installed('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})

const TIMEOUT_MS = 30_000
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }
const members = new Map()

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const base64 = buffer => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))
const connect = servers => new Kafka({ brokers: [servers], clientId: 'compat', logLevel: logLevel.ERROR, retry: { initialRetryTime: 50, retries: 10 } })

function bounded (promise, what) {
  let timer
  const late = new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error(`${what}: not within ${TIMEOUT_MS} ms`)), TIMEOUT_MS) })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

function headersOf (pairs) {
  const headers = {}
  for (const [name, value] of pairs) headers[name] = name in headers ? [headers[name], bytes(value)].flat() : bytes(value)
  return headers
}

function encoded (partition, message) {
  const headers = []
  for (const [name, values] of Object.entries(message.headers ?? {})) for (const value of [values].flat()) headers.push([name, base64(value)])
  return [partition, message.timestamp, base64(message.key), base64(message.value), headers, message.offset]
}

async function produce ({ servers, topic, records, codec, idempotent }) {
  // kafkajs names one base offset for each partition of a call: the offsets follow from the order.
  const producer = connect(servers).producer({ idempotent, maxInFlightRequests: idempotent ? 1 : 5 })
  await producer.connect()
  try {
    const messages = records.map(([partition, timestamp, key, value, headers]) =>
      ({ partition, timestamp: String(timestamp), key: bytes(key), value: bytes(value), headers: headersOf(headers) }))
    const next = new Map()
    for (const { partition, baseOffset, errorCode } of await producer.send({ topic, messages, acks: -1, compression: CODECS[codec] })) {
      if (errorCode !== 0) throw new Error(`partition ${partition}: error ${errorCode}`)
      next.set(partition, BigInt(baseOffset))
    }
    return records.map(([partition]) => {
      const offset = next.get(partition)
      next.set(partition, offset + 1n)
      return String(offset)
    })
  } finally {
    await producer.disconnect()
  }
}

async function readGroup ({ servers, topic, group, count }) {
  const consumer = connect(servers).consumer({ groupId: group, heartbeatInterval: 300, sessionTimeout: 10_000, maxWaitTimeInMs: 200 })
  const records = []
  const ends = new Map()
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    await bounded(new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (records.length === count) return
          records.push(encoded(partition, message))
          ends.set(partition, String(BigInt(message.offset) + 1n))
          if (records.length === count) resolve()
        },
      }).catch(reject)
    }), `${count} records`)
    await consumer.commitOffsets([...ends].map(([partition, offset]) => ({ topic, partition, offset })))
    return records
  } finally {
    await consumer.disconnect()
  }
}

class Member {
  constructor ({ servers, topic, group }) {
    this.topic = topic
    this.assignment = []
    this.consumed = []
    this.rebalances = 0
    this.startsAgain = false
    this.error = ''
    this.consumer = connect(servers).consumer({
      groupId: group,
      partitionAssigners: [PartitionAssigners.roundRobin],
      heartbeatInterval: 300,
      sessionTimeout: 30_000,
      maxWaitTimeInMs: 200,
      metadataMaxAge: 1000,
    })
  }

  async start () {
    const { GROUP_JOIN, CRASH, REBALANCING } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      if (this.startsAgain) this.startsAgain = false
      else this.rebalances += 1
      this.assignment = payload.memberAssignment[this.topic] ?? []
    })
    this.consumer.on(REBALANCING, () => { this.assignment = [] })
    // It may meet a moment in which no node was to be reached; then it starts again by itself, as it says, and joins anew: no rebalance of the group's.
    this.consumer.on(CRASH, ({ payload }) => {
      if (payload.restart) this.startsAgain = true
      else this.error = String(payload.error.stack)
    })
    await this.consumer.connect()
    await this.consumer.subscribe({ topic: this.topic, fromBeginning: true })
    this.consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ partition, message }) => { this.consumed.push([partition, message.offset]) },
    }).catch(error => { this.error = String(error.stack) })
  }

  report () {
    const { assignment, consumed, rebalances, error } = this
    this.consumed = []
    return { assignment, consumed, rebalances, error }
  }
}

const partitionsOf = (starts, name = 'offset') => Object.entries(starts).map(([partition, offset]) => ({ partition: Number(partition), [name]: String(offset) }))
const byPartition = (list, field = 'offset') => Object.fromEntries(list.map(entry => [entry.partition, entry[field]]))

const administer = {
  async offsets_at (admin, { topic, timestamp }) {
    // kafkajs answers with the end where nothing is as late: only the difference to the end tells.
    const found = byPartition(await admin.fetchTopicOffsetsByTimestamp(topic, timestamp))
    const ends = byPartition(await admin.fetchTopicOffsets(topic), 'high')
    return Object.fromEntries(Object.entries(found).map(([partition, offset]) => [partition, offset === ends[partition] ? '-1' : offset]))
  },
  async create_topic (admin, { topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    if (!await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }] })) throw new Error('not created')
  },
  async describe_topic (admin, { topic }) {
    const { topics: [{ partitions }] } = await admin.fetchTopicMetadata({ topics: [topic] })
    for (const partition of partitions) if (partition.leader < 0 || !partition.replicas.length || !partition.isr.length) throw new Error(JSON.stringify(partition))
    return partitions.length
  },
  list_topics: admin => admin.listTopics(),
  async describe_configs (admin, { topic }) {
    const { resources: [{ configEntries }] } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
    return Object.fromEntries(configEntries.map(entry => [entry.configName, entry.configValue]))
  },
  async alter_configs (admin, { topic, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
  },
  create_partitions: (admin, { topic, partitions }) => admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }),
  async delete_records (admin, { topic, starts }) {
    await admin.fetchTopicOffsets(topic) // makes it load the metadata that the next call wants to be there
    await admin.deleteTopicRecords({ topic, partitions: partitionsOf(starts) })
    const lows = byPartition(await admin.fetchTopicOffsets(topic), 'low')
    return Object.fromEntries(Object.keys(starts).map(partition => [partition, lows[partition]]))
  },
  list_groups: async admin => (await admin.listGroups()).groups.map(group => group.groupId),
  async describe_group (admin, { group }) {
    const { groups: [described] } = await admin.describeGroups([group])
    return [described.state, described.members.length]
  },
  async group_offsets (admin, { group, topic }) {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return byPartition(partitions.filter(({ offset }) => offset !== '-1'))
  },
  delete_group: (admin, { group }) => admin.deleteGroups([group]),
  delete_topic: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
}

async function perform (request) {
  switch (request.op) {
    case 'produce': return produce(request)
    case 'read_group': return readGroup(request)
    case 'join': {
      const member = new Member(request)
      members.set(request.member, member)
      return member.start()
    }
    case 'member': return members.get(request.member).report()
    case 'leave': {
      const member = members.get(request.member)
      members.delete(request.member)
      return bounded(member.consumer.disconnect(), 'disconnect')
    }
  }
  const admin = connect(request.servers).admin()
  await admin.connect()
  try {
    return await administer[request.op](admin, request)
  } finally {
    await admin.disconnect()
  }
}

async function main () {
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    let answer
    try {
      answer = { result: await perform(JSON.parse(line)) ?? null }
    } catch (error) {
      answer = { error: String(error.stack ?? error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()

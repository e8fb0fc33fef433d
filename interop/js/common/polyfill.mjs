// js-libp2p uses Promise.withResolvers, which Node has from version 22 on; import this file first.
if (Promise.withResolvers === undefined) {
  Promise.withResolvers = function () {
    let resolve, reject
    const promise = new this((yes, no) => {
      resolve = yes
      reject = no
    })
    return { promise, resolve, reject }
  }
}

// Work in slices of a few milliseconds, so that the page answers meanwhile. What is seen comes before what may be.

const SLICE = 9;

class Work {
  constructor() {
    this.urgent = [];
    this.later = [];
    this.waiting = false;
  }

  get left() {
    return this.urgent.length + this.later.length;
  }

  add(task, urgent) {
    (urgent ? this.urgent : this.later).push(task);
    this.wake();
  }

  wake() {
    if (this.waiting || !this.left) return;
    this.waiting = true;
    requestAnimationFrame(() => this.slice());
  }

  slice() {
    this.waiting = false;
    const end = performance.now() + SLICE;
    while (this.left && performance.now() < end) (this.urgent.shift() || this.later.shift())();
    this.wake();
  }
}

export const work = new Work();

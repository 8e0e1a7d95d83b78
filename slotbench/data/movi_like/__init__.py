"""MOVi-like videos: mujoco moves the objects, a ray-caster draws them."""

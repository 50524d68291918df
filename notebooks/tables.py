# %% [markdown]
# # From a CSV file to predictions and effects
# A file of used cars has words, dates, yes and no, and gaps. The estimators take it as it is, predict prices with
# intervals, and show with error bars what each column does to the price. The file is made here, so that its rule is
# known: electric cars lose less by their mileage, and prices differ by make and fall with age.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bsvr_pp as bp

plt.rcParams["figure.dpi"] = 70
rng = np.random.default_rng(0)
n = 300
age = rng.uniform(0.5, 12.0, n)
cars = pd.DataFrame({"make": rng.choice(["Adler", "Borgward", "Hansa", "NSU", "Wanderer"], n)})
cars["fuel"] = rng.choice(["petrol", "diesel", "electric"], n, p=[0.5, 0.25, 0.25])
cars["registered"] = (pd.Timestamp("2026-01-01") - pd.to_timedelta(365 * age, unit="D")).date
cars["automatic"] = rng.random(n) < 0.4
mileage = 12.0 * age * rng.gamma(9.0, 1.0 / 9.0, n)
cars["mileage"] = np.where(rng.random(n) < 0.1, np.nan, mileage.round(1))
new = 28.0 + 4.0 * cars["make"].map({"Adler": 0.0, "Borgward": 1.5, "Hansa": -0.5, "NSU": -1.0, "Wanderer": 3.0})
loss = cars["fuel"].map({"petrol": 0.06, "diesel": 0.04, "electric": 0.01}) * mileage
cars["price"] = (new * np.exp(-age / 14.0) - loss + 1.5 * cars["automatic"] + rng.laplace(scale=0.6, size=n)).round(2)
file = Path(tempfile.mkdtemp()) / "cars.csv"
cars.to_csv(file, index=False)
print(*file.read_text().splitlines()[:6], sep="\n")

# %% [markdown]
# ## In ten lines
# The file is read, 240 rows are fitted, and the others are predicted.

# %%
cars = pd.read_csv(file, parse_dates=["registered"])
X, price = cars.drop(columns="price"), cars["price"]
svr = bp.BayesianSVR(random_state=0).fit(X[:240], price[:240])
predicted = svr.predict_table(X[240:], coverage=0.9, target="price")
inside = price[240:].between(*svr.predict_interval(X[240:], coverage=0.9).T)
print(f"R² {svr.score(X[240:], price[240:]):.2f}, {inside.mean():.0%} of the prices in intervals of 90 %")
predicted.head().round(1)

# %% alt: Curves of the price over the date of registration and the mileage, bars of make and automatic
figure = bp.plot_effect(svr, X, ["registered", "mileage", "make", "automatic"], ice=8, target="price")
plt.show()

# %% [markdown]
# A curve is the mean over 100 cars of which the column is set to the value, and its band holds the whole curve with a
# probability of 90 %; a thin line is that of one car. Bars start at the mean of the panel.
#
# ## Two columns
# Two columns show what they do together. The lines of the fuels are not parallel: electric cars lose less by their
# mileage. In the contours the white lines are standard deviations; old cars with a low mileage are rare.

# %% alt: A falling line for each fuel over the mileage, and contours of the price over registration and mileage
figure = bp.plot_effect(svr, X, [("mileage", "fuel"), ("registered", "mileage")], target="price")
plt.show()

# %% [markdown]
# The numbers behind a panel are a table. Per 1000 km a car loses (by the rule 0.04, 0.01 and 0.06):

# %%
effect = bp.effect(svr, X, ("mileage", "fuel"))["mean"].unstack()
print((-(effect.iloc[-1] - effect.iloc[0]) / (effect.index[-1] - effect.index[0])).round(3).to_dict())

# %% [markdown]
# `encoding_` says how the columns became numbers.

# %%
print(*svr.encoding_.notes, sep="\n")

# %% [markdown]
# ## On your own data
# Read the file with `parse_dates` for columns of dates, and leave numbers out that only identify rows. Effects describe
# the fitted function: where two columns go together, such as age and mileage, the band is wide at values that the data
# do not combine.
